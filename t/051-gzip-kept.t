#!/usr/bin/perl

# gzip and gzip_static keep working for files without .zst, and do not come
# into the way of those with one.

use strict;
use warnings;

use IO::Compress::Gzip ();
use IO::Uncompress::Gunzip ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

# the commonest headers, and the coding that the module serves for them
my @headers = (
    ['gzip, deflate, br, zstd', 'zstd'],
    ['br, gzip', ''],
    ['gzip, deflate, br', ''],
    ['gzip', ''],
    [undef, ''],
    ['gzip, deflate', ''],
    ['gzip,deflate', ''],
    ['zstd, br, gzip', 'zstd'],
    ['gzip, zstd', 'zstd'],
    ['identity', ''],
);

my $t = Test::Zmap->new()->plan(5 * @headers + 4);

my $text = $t->text(3000, 1);
my $small = 'from the .zst ' x 40;
my $coded = $t->zst('zst.txt', $small);
$t->write('plain.txt', $text);


sub gzip {
    my ($bytes) = @_;

    my $gzip;
    IO::Compress::Gzip::gzip(\$bytes, \$gzip) or die 'gzip';

    return $gzip;
}


my $gz = gzip('from the .gz');
for my $name ('gz.txt', 'all.txt') {
    $t->write("$name.gz", $gz);
    $t->write($name, 'from the plain file');
}
my $all_coded = $t->zst('all.txt', 'from the .zst');

$t->run($t->conf(<<'EOF'));
zstd_mmap on;
location /filter/ { alias %%DIR%%/; gzip on; gzip_types *; gzip_vary on; }
location /static/ { alias %%DIR%%/; gzip_static on; gzip_vary on; }
location /declined/ { alias %%DIR%%/; gzip_static on;
                      zstd_mmap_decode missing; }
location /off/ { alias %%DIR%%/; gzip_static on; zstd_mmap_decode off; }
EOF


# coding and content; "zstd" stands for exactly the bytes of the file
sub said {
    my ($uri, $value, $coded) = @_;

    my $r = $t->get($uri, defined $value ? "Accept-Encoding: $value" : ());
    my $coding = join '+', $r->header_lines('Content-Encoding');
    my $body = $r->body;

    if ($coding eq 'gzip') {
        my $plain;
        IO::Uncompress::Gunzip::gunzip(\$body, \$plain) or return 'no gzip';
        $body = $plain;
    }

    return $coding if $coding eq 'zstd' && $body eq $coded;
    return "$coding $body";
}


for my $row (@headers) {
    my ($value, $serves) = @$row;
    my $gzip = ($value // '') =~ /gzip/ ? 'gzip' : '';
    my $name = $value // 'no header';

    is(said('/filter/plain.txt', $value), "$gzip $text",
       "[$name] a plain file behind the gzip filter");
    is(said('/static/gz.txt', $value),
       $gzip ? 'gzip from the .gz' : ' from the plain file',
       "[$name] a .gz file");
    is(said('/filter/zst.txt', $value, $coded),
       $serves || "$gzip $small", "[$name] a .zst file behind gzip");
    is(said('/static/all.txt', $value, $all_coded),
       $serves || ' from the .zst', "[$name] .zst and .gz");
    is(said('/declined/all.txt', $value, $all_coded),
       $serves || ($gzip ? 'gzip from the .gz' : ' from the plain file'),
       "[$name] .zst, .gz and plain, decode missing");
}

# only what decodes answers with 406
my $only = 'gzip, identity;q=0';
for my $where (qw(declined off)) {
    is(said("/$where/all.txt", $only, $all_coded), 'gzip from the .gz',
       "[$only] $where: left to gzip_static");
}
for my $where (qw(declined static)) {
    is($t->get("/$where/zst.txt", "Accept-Encoding: $only")->status, 406,
       "[$only] $where: no other file");
}
