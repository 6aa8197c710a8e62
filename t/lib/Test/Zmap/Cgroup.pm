package Test::Zmap::Cgroup;

# A control group with a limit of huge pages, for one test file at a time; gone
# however the test ends.
#
#   my $m = Test::Zmap::Machine->new();    # first: it keeps other tests away
#   my $g = Test::Zmap::Cgroup->new();
#   $g->limit(used => 2);                  # pages; undef: none
#   $g->limit(reserved => 2);
#   $g->inside(sub { $t->run($conf) });    # what it starts is in the group
#   $g->refusals('used');                  # how often the limit was hit
#
# Version 2 where the controller is there, else version 1, mounted for the time
# of the test.  Skips the file, with a word on the terminal, where the kernel
# has neither.

use strict;
use warnings;

use File::Temp ();
use POSIX ();
use Test::More ();

my $CONTROLLER = 'hugetlb';
my $PAGE = 2 << 20;

# names of files by version: limit, refusals
my %FILE = (
    1 => { used     => ['hugetlb.2MB.limit_in_bytes', 'hugetlb.2MB.failcnt'],
           reserved => ['hugetlb.2MB.rsvd.limit_in_bytes',
                        'hugetlb.2MB.rsvd.failcnt'] },
    2 => { used     => ['hugetlb.2MB.max', 'hugetlb.2MB.events'],
           reserved => ['hugetlb.2MB.rsvd.max', undef] },
);


sub new {
    my ($class) = @_;

    my $self = bless { undo => [] }, $class;
    $self->_watch();

    $self->_version_2() || $self->_version_1()
        || _skip("the kernel has no cgroup controller of huge pages");

    $self->{dir} = "$self->{root}/zmap-test-$$";
    mkdir $self->{dir} or die "$self->{dir}: $!";
    $self->_undo('rmdir', $self->{dir});

    -e "$self->{dir}/$FILE{$self->{version}}{reserved}[0]"
        or _skip('the controller of huge pages has no limit of 2 MB pages');

    return $self;
}


sub _skip {
    my ($why) = @_;

    Test::More::diag("SKIPPED: $why");
    Test::More::plan(skip_all => $why);
}


sub version { return $_[0]{version} }


sub _version_2 {
    my ($self) = @_;

    for my $root (_mounts('cgroup2')) {
        next unless _words("$root/cgroup.controllers")->{$CONTROLLER};

        if (!_words("$root/cgroup.subtree_control")->{$CONTROLLER}) {
            _write("$root/cgroup.subtree_control", "+$CONTROLLER");
            $self->_undo('write', "$root/cgroup.subtree_control",
                         "-$CONTROLLER");
        }

        @$self{qw(version root)} = (2, $root);
        return 1;
    }

    return 0;
}


sub _version_1 {
    my ($self) = @_;

    return 0 unless grep { /^$CONTROLLER\s.*\s1$/ } _lines('/proc/cgroups');

    my $root = (_mounts('cgroup', $CONTROLLER))[0];

    if (!defined $root) {
        $root = File::Temp::tempdir('zmap-cgroup-XXXXXX', TMPDIR => 1);
        $self->_undo('rmdir', $root);
        system('mount', '-t', 'cgroup', '-o', $CONTROLLER, $CONTROLLER, $root)
            == 0 or return 0;
        $self->_undo('umount', $root);
    }

    @$self{qw(version root)} = (1, $root);

    return 1;
}


sub _lines {
    my ($path) = @_;

    open(my $fh, '<', $path) or return ();

    return <$fh>;
}


sub _words { return { map { $_ => 1 } map { split } _lines($_[0]) } }


sub _write {
    my ($path, $text) = @_;

    open(my $fh, '>', $path) or die "$path: $!";
    syswrite($fh, $text) or die "$path is not $text: $!";
}


# where file systems of that type are mounted, with that option
sub _mounts {
    my ($type, $option) = @_;

    return map { $_->[1] }
        grep { !defined $option || ",$_->[3]," =~ /,$option,/ }
        grep { $_->[2] eq $type } map { [split] } _lines('/proc/mounts');
}


# A process that outlives this one, by whatever death: the pipe ends, and what
# was written to it is undone, the last first.
sub _watch {
    my ($self) = @_;

    pipe(my $reader, my $writer) or die "pipe: $!";
    my $pid = fork() // die "fork: $!";

    if ($pid) {
        close($reader);
        $self->{tell} = $writer;
        return;
    }

    POSIX::setsid();
    $SIG{$_} = 'IGNORE' for qw(INT TERM HUP QUIT PIPE);
    close($writer);
    my @undo = map { chomp; [split /\t/] } <$reader>;

    for my $undo (reverse @undo) {
        my ($what, @args) = @$undo;
        _patiently($what, @args) or print STDERR "# @$undo: not undone\n";
    }
    POSIX::_exit(0);
}


# a group is busy until its last process has ended
sub _patiently {
    my ($what, @args) = @_;

    for (1 .. 500) {
        return 1 if $what eq 'rmdir' ? rmdir $args[0]
            : $what eq 'umount' ? system('umount', @args) == 0
            : eval { _write(@args); 1 };
        select(undef, undef, undef, 0.01);
    }

    return 0;
}


sub _undo {
    my ($self, @what) = @_;

    my $line = join("\t", @what) . "\n";
    syswrite($self->{tell}, $line) == length $line or die "pipe: $!";
}


sub limit {
    my ($self, $kind, $pages) = @_;

    my $none = $self->{version} == 2 ? 'max' : -1;
    my $path = "$self->{dir}/$FILE{$self->{version}}{$kind}[0]";

    _write($path, defined $pages ? $pages * $PAGE : $none);
}


# undef where the kernel does not count
sub refusals {
    my ($self, $kind) = @_;

    my $name = $FILE{$self->{version}}{$kind}[1] // return undef;
    my ($line) = _lines("$self->{dir}/$name");
    my ($count) = $line =~ /(\d+)/;

    return $count;
}


# this process itself goes in and out: its children stay where they began
sub inside {
    my ($self, $work) = @_;

    my $home = $self->_home();

    _write("$self->{dir}/cgroup.procs", $$);
    my $ok = eval { $work->(); 1 };
    my $error = $@;
    _write("$self->{root}$home/cgroup.procs", $$);
    die $error unless $ok;
}


# the group that this process is in
sub _home {
    my ($self) = @_;

    my $re = $self->{version} == 2 ? qr/^0::(.*)$/
        : qr/^\d+:(?:[^:]*,)?$CONTROLLER(?:,[^:]*)?:(.*)$/;

    for my $line (_lines('/proc/self/cgroup')) {
        return $1 if $line =~ $re;
    }

    die "no control group of this process\n";
}


1;
