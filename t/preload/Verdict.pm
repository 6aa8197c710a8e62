package Verdict;

# What workers tell each other of the bytes of a file: the orders for verdict.c,
# each for the file of one request.
#
#   my $verdict = Verdict->new($t);
#   local $ENV{LD_PRELOAD} = $verdict->library;   # Hold->run() adds its own
#   local $ENV{ZMAP_VERDICT} = $verdict->path;    # and "env ZMAP_VERDICT;"
#   $verdict->ask($c, $uri, 'claim');   # the reply, asked over a connection;
#                                       # undef when there is none

use strict;
use warnings;

my $SOURCE = 't/preload/verdict.c';
my $MODULE = 'ngx_zstd_mmap_module';
my $NGINX = '/usr/share/nginx/src/src';


sub new {
    my ($class, $t) = @_;

    my $library = $t->run_dir() . '/verdict.so';
    my ($code, $output) = $t->capture('gcc', '-std=gnu17', '-O1', '-Wall',
        (map { ('-isystem', "$NGINX/$_") }
         qw(core event event/modules os/unix http http/modules http/v2)),
        '-isystem', 'build/nginx', '-I', $MODULE, '-I', "$MODULE/core",
        '-Wextra', '-Wno-unused-parameter', '-Werror', '-shared', '-fPIC',
        '-o', $library, $SOURCE, '-ldl');
    die "$SOURCE: $output" if $code;

    return bless { t => $t, library => $library,
                   order => $t->run_dir() . '/verdict.order' }, $class;
}


sub library { return $_[0]{library} }
sub path { return $_[0]{order} }


sub ask {
    my ($self, $c, $uri, $order) = @_;

    my $new = "$self->{order}.new";

    unlink "$self->{order}.reply";
    open(my $fh, '>', $new) or die "$new: $!";
    print $fh $order;
    close($fh) or die "$new: $!";
    rename $new, $self->{order} or die "rename $new: $!";

    $c->get($uri, 'Accept-Encoding: zstd');

    open($fh, '<', "$self->{order}.reply") or return undef;
    local $/;

    return <$fh>;
}


1;
