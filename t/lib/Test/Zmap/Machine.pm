package Test::Zmap::Machine;

# The pool of huge pages and the other settings of memory, for one test file
# at a time, and put back however the test ends.
#
#   my $m = Test::Zmap::Machine->new();   # waits for its turn
#   $m->pool(40);                         # so many pages are free, or it dies
#   $m->set('shmem_enabled', 'advise');
#   $m->free();                           # pages that a process could take
#   $m->page();                           # bytes
#
# Skips the file, with a word on the terminal, where that is not allowed.  Any
# nginx with "hugepages=auto" takes pages: such tests are named t/9*.

use strict;
use warnings;

use Fcntl qw(:flock);
use POSIX ();
use Test::More ();

my $HUGE = '/sys/kernel/mm/hugepages/hugepages-2048kB';

my %PATH = (
    nr_hugepages            => "$HUGE/nr_hugepages",
    nr_overcommit_hugepages => "$HUGE/nr_overcommit_hugepages",
    enabled       => '/sys/kernel/mm/transparent_hugepage/enabled',
    shmem_enabled => '/sys/kernel/mm/transparent_hugepage/shmem_enabled',
);


sub new {
    my ($class) = @_;

    _skip('needs huge pages of 2 MB') unless -e $PATH{nr_hugepages};
    _skip('needs root, to change the pool of huge pages') if $> != 0;

    open(my $lock, '<', '/proc/sys/vm/nr_hugepages') or die "lock: $!";
    flock($lock, LOCK_EX) or die "lock: $!";

    my %before = map { $_ => _get($_) } keys %PATH;
    my $self = bless { lock => $lock, before => \%before }, $class;
    $self->_watch();
    $self->set('nr_overcommit_hugepages', 0);

    return $self;
}


sub _skip {
    my ($why) = @_;

    Test::More::diag("SKIPPED: $why");
    Test::More::plan(skip_all => $why);
}


# A process that outlives this one, by whatever death, and has the lock, too.
sub _watch {
    my ($self) = @_;

    pipe(my $reader, my $writer) or die "pipe: $!";
    my $pid = fork() // die "fork: $!";

    if ($pid) {
        $self->{alive} = $writer;
        return;
    }

    # out of reach of signals that are for the test and all its processes
    POSIX::setsid();
    $SIG{$_} = 'IGNORE' for qw(INT TERM HUP QUIT PIPE);
    close($writer);
    1 while sysread($reader, my $byte, 1);

    for my $name (sort keys %{$self->{before}}) {
        eval { $self->set($name, $self->{before}{$name}); 1 }
            or print STDERR "# $@";
    }
    POSIX::_exit(0);
}


# the word in brackets of several, else the whole
sub _get {
    my ($name) = @_;

    my $text = _slurp($PATH{$name});

    return $text =~ /\[(\w+)\]/ ? $1 : $text;
}


sub _slurp {
    my ($path) = @_;

    open(my $fh, '<', $path) or die "$path: $!";
    my $text = <$fh> // '';
    chomp $text;

    return $text;
}


sub set {
    my ($self, $name, $value) = @_;

    return if _get($name) eq $value;

    open(my $fh, '>', $PATH{$name}) or die "$PATH{$name}: $!";
    syswrite($fh, $value) or die "$PATH{$name} is not $value: $!";
}


sub page { return 2 << 20 }


sub free {
    return _slurp("$HUGE/free_hugepages") - _slurp("$HUGE/resv_hugepages");
}


# The kernel moves pages about to make room, not always at once.
sub pool {
    my ($self, $count) = @_;

    my $used = _get('nr_hugepages') - $self->free();

    for (1 .. 10) {
        $self->set('nr_hugepages', $used + $count);
        return $self if $self->free() == $count;
    }

    die "no pool of $count free huge pages\n";
}


1;
