#!/usr/bin/perl

# Which files are staged: zstd_mmap_stage at each level, its limits, and its
# regular expression.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $t = Test::Zmap->new(log_level => 'info')->plan(33);
my $s = Test::Zmap::Status->new($t);

my $text = $t->random(20_000, 1);
my $ZSTD = 'Accept-Encoding: zstd';
my %size;


# a new file each time, so that nothing was counted before
my $made = 0;
sub make {
    my ($name) = @_;

    (my $rel = $name) =~ s/#/++$made/e;
    $size{$rel} = length $t->zst($rel, $text . $made);
    $t->settle("$rel.zst");

    return $rel;
}


# the zones into which a file is staged by so many requests, as "one:1"
sub staged {
    my ($prefix, $rel, $times, @headers) = @_;

    my $before = $s->get;
    my $wrong = 0;
    for (1 .. $times) {
        my $r = $t->get("$prefix/$rel", @headers ? @headers : $ZSTD);
        $wrong++ unless $r->status == 200 && $r->complete;
    }
    my $after = $s->get;

    my @zones = grep {
        $after->{zones}{$_}{segments} > $before->{zones}{$_}{segments}
    } sort keys %{$after->{zones}};
    my $counted = $after->{counters}{staged} - $before->{counters}{staged};

    return join(' ', @zones, $counted) . ($wrong ? ' wrong' : '');
}


my $http = join ' ', map { "zstd_mmap_zone $_:4m hugepages=off;" }
    qw(one two late);
my $stage = 'zstd_mmap on; zstd_mmap_stage one;';

$t->run($t->conf($s->location . <<'EOC', http => "$http $stage"));
    location /server/ { alias %%DIR%%/; }
    location /off/ {
        alias %%DIR%%/; zstd_mmap_stage off;
        location /off/in/ { alias %%DIR%%/; }
        location /off/on/ { alias %%DIR%%/; zstd_mmap_stage two; }
    }
    location /two/ {
        alias %%DIR%%/; zstd_mmap_stage two min_uses=3;
        if ($args) { set $x 1; }
        location /two/off/ { alias %%DIR%%/; zstd_mmap_stage off; }
        location /two/in/ { alias %%DIR%%/; zstd_mmap_send sendfile; }
        location /two/first/ { alias %%DIR%%/; zstd_mmap_stage two; }
    }
    location /first/ { alias %%DIR%%/; zstd_mmap_stage one min_uses=1; }
    location /small/ { alias %%DIR%%/; zstd_mmap_stage one max=20k; }
    location /large/ { alias %%DIR%%/; zstd_mmap_stage one max=19k; }
    location /css/ { alias %%DIR%%/; zstd_mmap_stage one min_uses=1 ~\.css$; }
    location /any/ { alias %%DIR%%/; zstd_mmap_stage one min_uses=1 ~*\.css$; }
    location /uri/ {
        alias %%DIR%%/;
        zstd_mmap_stage one min_uses=1 ~^/uri/(a|b)[0-9]+\.txt$;
    }
    location /utf/ {
        alias %%DIR%%/; zstd_mmap_stage one min_uses=1 ~^/utf/.\x20.;
    }
    location /mode/ { alias %%DIR%%/; zstd_mmap off; zstd_mmap_stage one; }
EOC

# inheritance

is(staged('', make('a#.txt'), 1), '0', 'http: one request is too few');
is(staged('', make('a#.txt'), 2), 'one 1', 'http: two requests stage');
is(staged('/server', make('a#.txt'), 2), 'one 1', 'inherited');
is(staged('/off', make('a#.txt'), 4), '0', 'off in a location');
is(staged('/off/in', make('a#.txt'), 4), '0', 'off is inherited');
is(staged('/off/on', make('a#.txt'), 2), 'two 1', 'on again inside');
is(staged('/two', make('a#.txt'), 2), '0', 'min_uses=3: two are too few');
is(staged('/two', make('a#.txt'), 3), 'two 1', 'min_uses=3: another zone');
is(staged('/two/off', make('a#.txt'), 4), '0', 'off in an inner location');
is(staged('/two/in', make('a#.txt'), 2), '0', 'min_uses is inherited');
is(staged('/two/in', make('a#.txt'), 3), 'two 1', 'and the zone');
is(staged('/two/first', make('a#.txt'), 2), 'two 1',
   'min_uses is not, where the directive is set anew');

my $file = make('a#.txt');
is(staged('/two', "$file?x", 3), 'two 1', 'an if inherits');
is(staged('/two', $file, 3), '0', 'a file is staged once');

# what is not asked for

is(staged('', 'none.txt', 1), '0 wrong', 'no file');
$file = make('a#.txt');
$t->head("/$file", $ZSTD) for 1 .. 4;
is(staged('', $file, 1), '0', 'HEAD needs no copy');
$t->get('/mode/' . make('a#.txt'), $ZSTD) for 1 .. 3;
is($s->get->{zones}{one}{segments}, 2, 'module off: none');

# limits

is(staged('/first', make('a#.txt'), 1), 'one 1', 'min_uses=1: the first one');
$file = make('a#.txt');
cmp_ok($size{$file}, '>', 19 << 10, 'a file above 19k');
is(staged('/large', $file, 4), '0', 'larger than max');
is(staged('/small', $file, 2), 'one 1', 'not larger than max');

# decoded replies count and are staged as well

is(staged('', make('a#.txt'), 1, 'Accept-Encoding: gzip'), '0',
   'decoded once');

# the expression

is(staged('/css', make('a#.css'), 1), 'one 1', '~: the URI matches');
is(staged('/css', make('a#.CSS'), 2), '0', '~: case matters');
is(staged('/css', make('a#.txt'), 2), '0', '~: does not match');
is(staged('/css', make('a#.txt') . '?x.css', 2), '0',
   '~: arguments are not of the URI');
is(staged('/any', make('a#.css'), 1), 'one 1', '~*: the URI matches');
is(staged('/any', make('a#.CSS'), 1), 'one 1', '~*: case is ignored');
is(staged('/any', make('a#.txt'), 2), '0', '~*: does not match');
is(staged('/uri', make('b#.txt'), 1), 'one 1', 'the whole URI is matched');
is(staged('/uri', make('c#.txt'), 2), '0', 'and nothing else');
make('u #.txt');
is(staged('/utf', sprintf('u%%20%d.txt', $made), 1), 'one 1',
   'the URI is decoded and normalized');
is(staged('/x/../uri', make('a#.txt'), 1), 'one 1', 'dots are resolved');
