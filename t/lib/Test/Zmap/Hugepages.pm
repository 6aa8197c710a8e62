package Test::Zmap::Hugepages;

# Others that have a say in the pool of huge pages: a neighbour, a cgroup.
#
#   my $pool = Test::Zmap::Hugepages->new();   # a Test::Zmap::Machine
#   $pool->take(2);             # a neighbour holds two of the pages ...
#   $pool->give_back;           # ... until now
#   $pool->limit(3, $pid ...);  # a cgroup allows the processes three pages

use strict;
use warnings;

use File::Temp ();
use IPC::SysV qw(IPC_PRIVATE IPC_RMID memwrite shmat);
use POSIX ();

use Test::Zmap::Machine ();

our @ISA = qw(Test::Zmap::Machine);

# shmget(2): of huge pages, of 2 MB
my $SHM_HUGETLB = 04000 | 21 << 26;


sub take {
    my ($self, $n) = @_;

    pipe(my $in, my $hold) or die "pipe: $!";
    my $pid = open(my $ready, '-|') // die "fork: $!";
    if ($pid == 0) {
        close($hold);
        syswrite(STDOUT, "1\n") if _touch($n << 21);
        sysread($in, my $end, 1);
        POSIX::_exit(0);
    }

    die "the neighbour has no pages\n" unless (<$ready> // '') eq "1\n";
    $self->{neighbour} = [$hold, $ready];
}


# Pages that this process has for as long as it lives: what is removed goes
# with the last process that has it attached.
sub _touch {
    my ($size) = @_;

    my $id = shmget(IPC_PRIVATE, $size, 0600 | $SHM_HUGETLB) // return 0;
    my $memory = shmat($id, undef, 0);
    shmctl($id, IPC_RMID, 0);

    return defined $memory && memwrite($memory, "\0" x $size, 0, $size);
}


sub give_back {
    my ($self) = @_;

    my $neighbour = delete $self->{neighbour} or return;
    local ($?, $!);
    close($_) for @$neighbour;
}


# Version 2 may be mounted a second time, wherever the first one is; version 1
# where that one has the controller.
sub limit {
    my ($self, $n, @pids) = @_;

    my $root = File::Temp::tempdir('zmap-cgroup-XXXXXX', TMPDIR => 1);
    my $file = 'hugetlb.2MB.max';
    $self->_mount($root, 'cgroup2');
    if (_slurp("$root/cgroup.controllers") =~ /\bhugetlb\b/) {
        my $names = _slurp("$root/cgroup.subtree_control");
        $self->{added} = $names !~ /hugetlb/;
        _put("$root/cgroup.subtree_control", '+hugetlb') if $self->{added};
    } else {
        system('umount', $root);
        $file = 'hugetlb.2MB.limit_in_bytes';
        $self->_mount($root, 'cgroup', '-o', 'hugetlb');
    }
    mkdir "$root/zmap-$$" or die "mkdir: $!";
    _put("$root/zmap-$$/$file", $n << 21);
    _put("$root/zmap-$$/cgroup.procs", $_) for @pids;
}


sub _mount {
    my ($self, $root, $type, @options) = @_;

    system('mount', '-t', $type, @options, 'none', $root) == 0
        or die "$type cannot be mounted\n";
    $self->{cgroup} = $root;
}


sub _slurp {
    open(my $fh, '<', $_[0]) or die "$_[0]: $!";
    local $/;

    return <$fh>;
}


sub _put {
    my ($path, $text) = @_;

    open(my $fh, '>', $path) or die "$path: $!";
    syswrite($fh, $text) // die "$path: $!";
    close($fh);
}


sub DESTROY {
    my ($self) = @_;

    local ($@, $?, $!);
    $self->give_back();
    $self->_remove_cgroup() if $self->{cgroup};
}


# a process that has just ended may still be in it
sub _remove_cgroup {
    my ($self) = @_;

    my $root = delete $self->{cgroup};
    for (1 .. 500) {
        last if rmdir "$root/zmap-$$" || !-d "$root/zmap-$$";
        select(undef, undef, undef, 0.01);
    }
    eval { _put("$root/cgroup.subtree_control", '-hugetlb') }
        if $self->{added};
    system('umount', $root);
    rmdir $root;
}


1;
