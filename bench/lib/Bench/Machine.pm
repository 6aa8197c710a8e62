package Bench::Machine;

# What a run was measured on, and what else went on there.
#
#   Bench::Machine::need(qw(wrk curl));       # dies when one is missing
#   my @cpus = Bench::Machine::cpus();        # this process may run on
#   my $watch = Bench::Machine->watch(sub { ... });
#                                             # ns of what is measured
#   $watch->others();                         # "others used 3.0 % of ..."
#   Bench::Machine::hardware();               # CPU, their number, Linux
#   Bench::Machine::files_on($dir);           # "files on ext4"
#   Bench::Machine::nginx($binary);           # its version

use strict;
use warnings;
use utf8;

use List::Util ();
use POSIX ();
use Time::HiRes ();


sub need {
    for my $name (@_) {
        system("command -v $name >/dev/null") == 0
            or die "$name is missing: tools/build/packages bench\n";
    }
}


sub cpus {
    open(my $fh, '<', '/proc/self/status') or return;
    my ($list) = map { /^Cpus_allowed_list:\s+(\S+)$/ ? $1 : () } <$fh>;

    return map { /^(\d+)-(\d+)$/ ? $1 .. $2 : $_ } split /,/, $list // '';
}


sub watch {
    my ($class, $measured) = @_;

    my $self = bless { measured => $measured }, $class;
    $self->{start} = Time::HiRes::time();
    $self->{before} = $self->_others();

    return $self;
}


# CPU time of the machine that is neither this program's nor what it measures,
# in seconds
sub _others {
    my ($self) = @_;

    open(my $fh, '<', '/proc/stat') or return 0;
    my (undef, $user, $nice, $system, undef, undef, $irq, $softirq)
        = split ' ', scalar <$fh>;
    my $own = List::Util::sum((times)[0 .. 3]);

    return ($user + $nice + $system + $irq + $softirq)
           / POSIX::sysconf(POSIX::_SC_CLK_TCK()) - $own
           - $self->{measured}->() / 1e9;
}


sub others {
    my ($self) = @_;

    my $elapsed = Time::HiRes::time() - $self->{start};

    return sprintf('others used %.1f %% of one CPU meanwhile (below 0: the '
                   . 'ticks of the total and of the processes differ)',
                   100 * ($self->_others() - $self->{before})
                   / ($elapsed || 1));
}


sub hardware {
    open(my $fh, '<', '/proc/cpuinfo') or return 'unknown CPU';
    my ($model) = map { /^model name\s*:\s*(.+)/ ? $1 : () } <$fh>;

    return ($model // 'unknown CPU') . ', ' . output_of('nproc')
           . ' CPUs, Linux ' . (POSIX::uname())[2];
}


sub files_on { return 'files on ' . output_of("stat -f -c %T $_[0]") }


sub nginx { return output_of("$_[0] -v") =~ s/^nginx version: //r }


# the first line
sub output_of {
    my ($command) = @_;

    my $text = `$command 2>&1`;
    utf8::decode($text);
    $text =~ s/\n.*//s;

    return $text;
}


1;
