package Test::Zmap::Bench;

# Runs of what is in bench/, with a folder of the test.
#
#   my $bench = Test::Zmap::Bench->new();
#   my ($code, $text) = $bench->run('replies', @options);   # the tables; with
#                                       # the nginx and the module of the tests
#   $bench->messages;                   # what the last run said beside them
#   $bench->path($name);                # a file in the folder
#   $bench->content($name);             # its characters
#   $bench->left;                       # what runs left behind

use strict;
use warnings;

use File::Temp ();


sub new {
    my ($class) = @_;

    my $dir = File::Temp::tempdir('zmap-test-XXXXXX', TMPDIR => 1,
                                  CLEANUP => 1);
    chmod 0755, $dir;

    return bless { dir => $dir }, $class;
}


sub path { return "$_[0]{dir}/$_[1]" }


sub _under_test {
    my %variable = (nginx => 'TEST_NGINX_BINARY',
                    module => 'TEST_NGINX_MODULE');

    return map { ("--$_", $ENV{$variable{$_}}) }
        grep { defined $ENV{$variable{$_}} } sort keys %variable;
}


sub run {
    my ($self, $name, @options) = @_;

    my $pid = open(my $fh, '-|') // die "fork: $!";
    if ($pid == 0) {
        open(STDERR, '>', $self->path('messages'));
        exec "bench/$name", '--dir', $self->{dir}, _under_test(), @options
            or die "exec: $!";
    }
    binmode($fh, ':encoding(UTF-8)');
    my $text = do { local $/; <$fh> // '' };
    close($fh);

    return ($? >> 8, $text);
}


sub content {
    my ($self, $name) = @_;

    my $path = $self->path($name);
    open(my $fh, '<:encoding(UTF-8)', $path) or die "$path: $!";
    local $/;

    return <$fh> // '';
}


sub messages { return $_[0]->content('messages') }
sub left { return [glob $_[0]->path('zmap-bench-*')] }


1;
