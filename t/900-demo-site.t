#!/usr/bin/perl

# Every file of the demo site, as frames and decoded.

use strict;
use warnings;

use Cwd ();
use File::Find ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $demo = Cwd::abs_path('build/demo');
my @files;
File::Find::find(sub {
    push @files, $File::Find::name =~ s{^\Q$demo/original/\E}{}r if -f;
}, "$demo/original");
@files = sort @files;

my $t = Test::Zmap->new(log_level => 'info')->plan(4);

$t->run($t->conf("root $demo/site; location / { zstd_mmap on; }"));


sub slurp {
    my ($path) = @_;

    open(my $fh, '<:raw', $path) or die "$path: $!";
    local $/;

    return <$fh> // '';
}


sub uri {
    return '/' . $_[0] =~ s{([^A-Za-z0-9/._-])}{sprintf '%%%02X', ord $1}ger;
}


# the files that did not come as they are on disk
sub differing {
    my ($coding, $disk) = @_;

    my $c;
    my @bad;

    for my $file (@files) {
        $c //= $t->connect();
        my $r = $c->get(uri($file), "Accept-Encoding: $coding");
        my $got = $r->header('Content-Encoding') // 'identity';
        push @bad, "$file: status " . $r->status . ", $got\n"
            unless $r->status == 200 && $r->complete && $got eq $coding
                   && $r->body eq slurp($disk->($file));
        undef $c
            if !$r->complete || ($r->header('Connection') // '') eq 'close';
    }

    return @bad;
}


cmp_ok(scalar @files, '>=', 300, 'enough files');

my @bad = differing('zstd', sub { "$demo/site/$_[0].zst" });
is(scalar @bad, 0, 'frames equal the .zst files')
    or diag(@bad > 10 ? @bad[0 .. 9] : @bad);

@bad = differing('identity', sub { "$demo/original/$_[0]" });
is(scalar @bad, 0, 'decoded bytes equal the originals')
    or diag(@bad > 10 ? @bad[0 .. 9] : @bad);

File::Find::find(sub {
    push @bad, $_ if -f && !/\.zst$/;
}, "$demo/site");
is(scalar @bad, 0, 'the site holds .zst files only');

diag(scalar(@files) . ' files, each as frames and decoded');
