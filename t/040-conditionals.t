#!/usr/bin/perl

# Conditional requests on both representations (RFC 9110, 13); HEAD, 304 and
# 412 decode nothing.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $MTIME = 1600000000;
my $EARLIER = 'Sat, 12 Sep 2020 12:26:40 GMT';
my $DATE = 'Sun, 13 Sep 2020 12:26:40 GMT';
my $LATER = 'Mon, 14 Sep 2020 12:26:40 GMT';
my $DECODES = qr/zstd mmap: (?:decode \d+ bytes|step in)/;

my $t = Test::Zmap->new()->plan(4 * 3 + 11);

my (%text, %coded);
%text = (a => $t->text(5000, 1), long => $t->text(200_000, 2),
         loose => $t->text(5000, 3));
$coded{$_} = $t->zst("$_.txt", $text{$_}, mtime => $MTIME,
                     size => $_ ne 'loose') for keys %text;


sub tag { return sprintf '"%x-%x%s"', $MTIME, @_ }


my %tag = map { ("$_ zstd" => tag(length $coded{$_}, '-zst'),
                 "$_ gzip" => tag(length $text{$_}, '')) } keys %text;
$tag{'loose gzip'} = tag(length $coded{loose}, '-d');

my $conf = 'zstd_mmap_buffers 1m max=100k; zstd_mmap_cache off;';

$t->run($t->conf(<<'EOF', http => $conf));
zstd_mmap on;
location /untagged/ { alias %%DIR%%/; etag off; }
location /before/ { alias %%DIR%%/; if_modified_since before; }
location /ignored/ { alias %%DIR%%/; if_modified_since off; }
EOF


# conditions, or none, and the status they lead to; own and other are the tags
# of this representation and of the other one
sub rows {
    my ($own, $other) = @_;

    return (
        [200],
        ["If-None-Match: $own", 304],
        ["If-None-Match: W/$own", 304],
        ['If-None-Match: *', 304],
        ["If-None-Match: \"x\", $own, \"y\"", 304],
        ["If-None-Match: \"x\",$own", 304],
        ["If-None-Match: $other", 200],
        ["If-None-Match: \"x\", $other", 200],
        ['If-None-Match: "x"', 200],
        ["If-Modified-Since: $DATE", 304],
        ["If-Modified-Since: $EARLIER", 200],
        ["If-Modified-Since: $LATER", 200],
        ['If-Modified-Since: yesterday', 200],
        ["If-None-Match: $own", "If-Modified-Since: $DATE", 304],
        ["If-None-Match: $other", "If-Modified-Since: $DATE", 200],
        ["If-Match: $own", 200],
        ['If-Match: *', 200],
        ["If-Match: \"x\", $own", 200],
        ["If-Match: $other", 412],
        ["If-Match: W/$own", 412],
        ['If-Match: "x"', 412],
        ["If-Unmodified-Since: $DATE", 200],
        ["If-Unmodified-Since: $LATER", 200],
        ["If-Unmodified-Since: $EARLIER", 412],
        ["If-Match: $own", "If-None-Match: $own", 304],
        ["If-Match: $other", "If-None-Match: $own", 412],
        ["If-Unmodified-Since: $DATE", "If-Modified-Since: $DATE", 304],
    );
}


# what is wrong with a reply, or an empty string
sub fault {
    my ($r, $method, $status, $name, $coding) = @_;

    return 'status ' . $r->status if $r->status != $status;
    return 'incomplete' unless $r->complete;
    return '' if $status == 412;

    return 'tag ' . ($r->header('ETag') // 'none')
        if ($r->header('ETag') // '') ne $tag{"$name $coding"};
    return 'no Vary' unless ($r->header('Vary') // '') eq 'Accept-Encoding';

    my $body = $status == 304 || $method eq 'HEAD' ? ''
        : $coding eq 'zstd' ? $coded{$name} : $text{$name};
    return 'body' if $r->body ne $body;

    my $encoding = $r->header('Content-Encoding') // '-';
    my $expected = $status == 200 && $coding eq 'zstd' ? 'zstd' : '-';
    return "coding $encoding" if $encoding ne $expected;
    return '304 with a length'
        if $status == 304 && $r->header_lines('Content-Length');

    return '';
}


my ($silent_requests, $silent_decodes) = (0, 0);

for my $name (qw(a long loose)) {
    for my $coding (qw(zstd gzip)) {
        my @tags = map { $tag{"$name $_"} } $coding, $coding eq 'zstd'
            ? 'gzip' : 'zstd';

        for my $method (qw(GET HEAD)) {
            my @wrong;
            for my $row (rows(@tags)) {
                my ($status) = reverse @$row;
                my @headers = @$row[0 .. $#$row - 1];
                my $silent = $method eq 'HEAD' || $status != 200;
                my $before = $silent ? $t->log_count($DECODES) : 0;

                # a new ctime: what was decoded before is of another version
                $t->mtime("$name.txt.zst", $MTIME);

                my $r = $t->request($method, "/$name.txt", headers =>
                    [@headers, "Accept-Encoding: $coding"]);
                my $fault = fault($r, $method, $status, $name, $coding);
                push @wrong, "@headers: $fault, not $status\n" if $fault;
                next unless $silent;

                $silent_requests++;
                $silent_decodes += $t->log_count($DECODES) - $before;
            }
            is(join('', @wrong), '', "$name, $coding client, $method");
        }
    }
}

is($silent_decodes, 0, "none of $silent_requests HEAD, 304 and 412 decoded");

my $before = $t->log_count($DECODES);
$t->mtime('a.txt.zst', $MTIME);
$t->get('/a.txt');
is($t->log_count($DECODES), $before + 1, 'a GET is seen to decode');
$t->mtime('loose.txt.zst', $MTIME);
$t->get('/loose.txt');
cmp_ok($t->log_count($DECODES), '>', $before + 1, 'a streamed one as well');

# the other settings of nginx

is($t->get('/untagged/a.txt', "If-Modified-Since: $DATE")->status, 304,
   'etag off: a date is enough');
is($t->get('/untagged/a.txt', "If-None-Match: $tag{'a gzip'}")->status, 200,
   'etag off: a tag does not match');
is($t->get('/before/a.txt', "If-Modified-Since: $LATER")->status, 304,
   'if_modified_since before');
is($t->get('/before/a.txt', "If-Modified-Since: $LATER",
           'Accept-Encoding: zstd')->status, 304, 'also for frames');
is($t->get('/ignored/a.txt', "If-Modified-Since: $DATE")->status, 200,
   'if_modified_since off');

# a tag must hold when the client is asked for the other coding later

is($t->get('/loose.txt', "If-None-Match: $tag{'loose zstd'}")->status, 200,
   'frames in a cache do not answer for decoded bytes');
my $r = $t->get('/a.txt', "If-None-Match: $tag{'a gzip'}");
is($r->status, 304, 'decoded bytes do');

# such a request decodes after the header: an error there ends the reply

$t->raw_zst('wrong.txt', $t->frame(fcs => 300, checksum => 2,
                                   blocks => [[rle => 'w', 300]]));
$r = $t->get('/wrong.txt', 'If-None-Match: "x"');
ok($r->status == 500 || !$r->complete, 'a wrong checksum is no whole reply');
