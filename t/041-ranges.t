#!/usr/bin/perl

# Ranges count the bytes of the representation that the client gets: those of
# the file for frames, decoded ones else (RFC 9110, 14).

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $MTIME = 1600000000;
my $EARLIER = 'Sat, 12 Sep 2020 12:26:40 GMT';
my $DATE = 'Sun, 13 Sep 2020 12:26:40 GMT';

my $t = Test::Zmap->new()->plan(2 * 8 + 6);

my $text = $t->text(40_000, 1);
my $coded = $t->zst('a.txt', $text, mtime => $MTIME);
$t->zst('empty.txt', '', mtime => $MTIME);

my %body = (zstd => $coded, gzip => $text);
my %tag = (zstd => sprintf('"%x-%x-zst"', $MTIME, length $coded),
           gzip => sprintf('"%x-%x"', $MTIME, length $text));

$t->run($t->conf(<<'EOF'));
zstd_mmap on;
location /none/ { alias %%DIR%%/; max_ranges 0; }
location /one/ { alias %%DIR%%/; max_ranges 1; }
EOF


sub get {
    my ($uri, $coding, @headers) = @_;

    return $t->get($uri, "Accept-Encoding: $coding", @headers);
}


# header value and the ranges it means for n bytes; none: 416, undef: ignored
sub rows {
    my ($n) = @_;

    my $last = $n - 1;

    return (
        ['bytes=0-0', [0, 0]],
        ['bytes=0-99', [0, 99]],
        ['bytes=100-199', [100, 199]],
        ['bytes=100-', [100, $last]],
        ['bytes=0-', [0, $last]],
        ["bytes=0-$last", [0, $last]],
        ["bytes=0-$n", [0, $last]],
        ['bytes=5-99999999', [5, $last]],
        ["bytes=$last-", [$last, $last]],
        ['bytes=-1', [$last, $last]],
        ['bytes=-100', [$n - 100, $last]],
        ["bytes=-$n", [0, $last]],
        ['bytes= 3 - 4 ', [3, 4]],
        ['bytes=0-1,10-11', [0, 1], [10, 11]],
        ['bytes=10-11,0-1', [10, 11], [0, 1]],
        ['bytes=0-1, 7-7, -5', [0, 1], [7, 7], [$n - 5, $last]],
        ['bytes=0-1,99999999-', [0, 1]],
        ["bytes=$n-"],
        ['bytes=99999999-'],
        ['bytes=-0'],
        ['bytes=9-3'],
        ['bytes=a-b'],
        ['bytes=99999999999999999999-'],
        ['lines=0-1', undef],
    );
}


# what is wrong with a reply, or an empty string
sub fault {
    my ($r, $body, @ranges) = @_;

    my $n = length $body;
    my $range = $r->header('Content-Range');

    if (@ranges && !defined $ranges[0]) {
        return $r->status == 200 && !defined $range && $r->body eq $body
            ? '' : 'not ignored: ' . $r->status;
    }

    if (!@ranges) {
        return 'not 416: ' . $r->status if $r->status != 416;
        return ($range // '') eq "bytes */$n" ? '' : $range // 'no size';
    }

    return 'not 206: ' . $r->status if $r->status != 206;
    return 'incomplete' unless $r->complete;
    return parts_fault($r, $body, @ranges) if @ranges > 1;

    my ($from, $to) = @{$ranges[0]};
    return 'range ' . ($range // 'missing')
        if ($range // '') ne "bytes $from-$to/$n";
    return 'length' if $r->header('Content-Length') != $to - $from + 1;

    return $r->body eq substr($body, $from, $to - $from + 1) ? '' : 'body';
}


# multipart/byteranges (RFC 9110, 14.6)
sub parts_fault {
    my ($r, $body, @ranges) = @_;

    my ($boundary) = $r->header('Content-Type')
        =~ m{^multipart/byteranges; boundary=(\w+)$} or return 'no multipart';
    my $expected = '';
    for my $range (@ranges) {
        my ($from, $to) = @$range;
        $expected .= "\r\n--$boundary\r\nContent-Type: text/plain\r\n"
            . "Content-Range: bytes $from-$to/" . length($body)
            . "\r\n\r\n" . substr($body, $from, $to - $from + 1);
    }
    $expected .= "\r\n--$boundary--\r\n";

    return $r->body eq $expected ? '' : 'parts';
}


for my $coding (qw(zstd gzip)) {
    my $body = $body{$coding};
    my $other = $coding eq 'zstd' ? 'gzip' : 'zstd';
    my $one = 'Range: bytes=5-8';
    my $part = [5, 8];

    my @wrong;
    for my $row (rows(length $body)) {
        my ($value, @ranges) = @$row;
        my $r = get('/a.txt', $coding, "Range: $value");
        my $fault = fault($r, $body, @ranges);
        push @wrong, "$value: $fault\n" if $fault;
    }
    is(join('', @wrong), '', "$coding client: ranges");

    @wrong = ();
    for my $row (["$tag{$coding}", $part], ["$tag{$other}", undef],
                 ["W/$tag{$coding}", undef], ['"x"', undef],
                 [$DATE, $part], [$EARLIER, undef])
    {
        my ($value, @ranges) = @$row;
        my $r = get('/a.txt', $coding, $one, "If-Range: $value");
        my $fault = fault($r, $body, @ranges);
        push @wrong, "$value: $fault\n" if $fault;
    }
    is(join('', @wrong), '', "$coding client: If-Range");

    my $r = get('/a.txt', $coding);
    is(join(' ', $r->status, $r->header('Content-Range') // '-',
            $r->header('Accept-Ranges')), '200 - bytes',
       "$coding client: without Range the whole file, and ranges offered");

    $r = get('/a.txt', $coding, $one);
    is(join(' ', $r->status, $r->header('ETag'), $r->header('Vary'),
            $r->header('Content-Encoding') // '-'),
       "206 $tag{$coding} Accept-Encoding "
       . ($coding eq 'zstd' ? 'zstd' : '-'),
       "$coding client: a 206 has the headers of the file");

    $r = get('/a.txt', $coding, 'Range: bytes=900000-');
    is(join(' ', $r->status, map { $r->header($_) // '-' }
            qw(Content-Encoding ETag Vary Accept-Ranges)), '416 - - - -',
       "$coding client: a 416 has none");

    is(fault(get('/none/a.txt', $coding, $one), $body, undef), '',
       "$coding client: max_ranges 0");
    is(fault(get('/one/a.txt', $coding, 'Range: bytes=0-1,5-6'), $body,
             undef), '', "$coding client: more than max_ranges");

    my $whole = join '', map {
        get('/a.txt', $coding, 'Range: bytes=' . $_ * 5000 . '-'
            . ($_ * 5000 + 4999))->body
    } 0 .. int((length($body) - 1) / 5000);
    is($whole, $body, "$coding client: parts make the whole");
}

my $r = $t->head('/a.txt', 'Range: bytes=0-9');
is($r->header('Content-Length') . ' ' . $r->body, '10 ',
   'HEAD with a range, as for a plain file');
is(get('/empty.txt', 'gzip', 'Range: bytes=0-')->status, 200,
   'an empty body is sent whole');
is(get('/empty.txt', 'gzip', 'Range: bytes=1-')->status, 416,
   'as nginx does, unless the range is beyond its end');

$r = get('/a.txt', 'zstd, identity;q=0', 'Range: bytes=4-9');
is($r->body, substr($coded, 4, 6), 'a client that takes frames only');
$r = get('/a.txt', 'identity', 'Range: bytes=4-9');
is($r->body, substr($text, 4, 6), 'a browser asks for identity with ranges');
$r = get('/a.txt', 'identity;q=1, *;q=0', 'Range: bytes=4-');
is($r->body, substr($text, 4), 'or like this for media');
