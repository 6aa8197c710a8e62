#!/usr/bin/perl

# A file that is replaced or deleted while it is sent: the old bytes, whole.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $old = $t->random(1_500_000, 1);
my $new = $t->random(1_500_000, 2);

my %coded = (
    known   => sub { $t->compress($_[0]) },
    unknown => sub { $t->compress($_[0], size => 0) },
);

my %change = (
    replaced => sub { $t->replace("$_[0].txt.zst", $_[1]) },
    deleted  => sub { $t->unlink("$_[0].txt.zst") },
    twice    => sub { $t->replace("$_[0].txt.zst", 'bad');
                      $t->get("/$_[0].txt");
                      $t->replace("$_[0].txt.zst", $_[1]) },
);

my @rows = map { my $kind = $_; map { [$kind, $_] } sort keys %change }
    sort keys %coded;

$t->plan(7 * @rows * 2);

my $conf = $t->conf(<<'EOC', http => 'zstd_mmap_buffers 4m max=1m;');
    zstd_mmap on;
    zstd_mmap_chunk 32k;
EOC
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& sndbuf=8k/;

$t->run($conf);
rounds('max=1m');

$t->reload(conf => $conf =~ s/4m max=1m/16m max=2m/r);
rounds('max=2m');


sub rounds {
    my ($how) = @_;

    for my $row (@rows) {
        my ($kind, $change) = @$row;
        my $name = "$kind-$change";
        my ($was, $becomes) = map { $coded{$kind}->($_) } $old, $new;

        $t->raw_zst("$name.txt", $was);
        $t->settle("$name.txt.zst") if $kind eq 'known';

        my @client = map { $t->connect(rcvbuf => 4096) } 1 .. 3;
        my @accept = ('identity', 'zstd', 'identity');
        for my $i (0 .. 2) {
            $client[$i]->send_request('GET', "/$name.txt", version => '1.0',
                headers => ["Accept-Encoding: $accept[$i]"]);
            like($client[$i]->read_some(15), qr/ 200 /,
                 "$name, $how, $accept[$i]: begun");
        }

        $change{$change}->($name, $becomes);

        my $r = $t->get("/$name.txt");
        ok($change eq 'deleted' ? $r->status == 404
           : $r->complete && $r->body eq $new, "$name, $how: the next request");

        for my $i (0 .. 2) {
            my ($body) = $client[$i]->read_some(1 << 22)
                =~ /\r\n\r\n(.*)/s;
            ok($body eq ($accept[$i] eq 'zstd' ? $was : $old)
               && !$client[$i]{reset},
               "$name, $how, $accept[$i]: the old bytes, whole");
            $client[$i]->close();
        }
    }
}
