package Bench::Machine;

# The machine: who runs where, what others do meanwhile, what it is.
#
#   Bench::Machine::pin($server, $load);    # CPUs of their own, if there are
#                                           # two; the one of the worker
#   Bench::Machine::others($server);        # seconds of CPU that were neither
#                                           # this program's nor the worker's
#   Bench::Machine::lines($server, $load, nginx => ..., dir => ...);
#                                           # what it is, as text
#   Bench::Machine::busy($others, $elapsed);

use strict;
use warnings;
use utf8;

use List::Util ();
use POSIX ();


# the first CPU for the worker, the others for wrk
sub pin {
    my ($server, $load) = @_;

    my @cpus = map { /^(\d+)-(\d+)$/ ? $1 .. $2 : $_ }
        split /,/, (_allowed() // '');

    return if @cpus < 2;

    $server->pin($cpus[0]);
    $load->{cpus} = join ',', @cpus[1 .. $#cpus];

    return $cpus[0];
}


sub _allowed {
    open(my $fh, '<', '/proc/self/status') or return;

    return (map { /^Cpus_allowed_list:\s+(\S+)$/ ? $1 : () } <$fh>)[0];
}


sub others {
    my ($server) = @_;

    open(my $fh, '<', '/proc/stat') or return 0;
    my (undef, $user, $nice, $system, undef, undef, $irq, $softirq)
        = split ' ', scalar <$fh>;
    my $own = List::Util::sum((times)[0 .. 3]);

    return ($user + $nice + $system + $irq + $softirq)
           / POSIX::sysconf(POSIX::_SC_CLK_TCK()) - $own
           - $server->cpu() / 1e9;
}


sub _output_of {
    my ($command) = @_;

    my $text = `$command 2>&1`;
    utf8::decode($text);
    $text =~ s/\n.*//s;

    return $text;
}


sub lines {
    my ($server, $load, %opt) = @_;

    my ($model) = map { /^model name\s*:\s*(.+)/ ? $1 : () }
        split /\n/, `cat /proc/cpuinfo`;
    my $wrk = _output_of('wrk -v') =~ s/ Copyright.*//r;

    return (
        ($model // 'unknown CPU') . ', ' . _output_of('nproc') . ' CPUs, Linux '
            . (POSIX::uname())[2],
        _output_of("$opt{nginx} -v") =~ s/^nginx version: //r
            . ", $wrk, files on " . _output_of("stat -f -c %T $opt{dir}"),
        ($load->{cpus} ? 'worker and wrk on CPUs of their own'
                       : 'CPUs left to the kernel'));
}


sub busy {
    my ($others, $elapsed) = @_;

    return sprintf('others used %.1f %% of one CPU meanwhile (below 0: the '
                   . 'ticks of the total and of the processes differ)',
                   100 * $others / ($elapsed || 1));
}


1;
