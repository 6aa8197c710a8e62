package Bench::Load;

# What a reply costs the worker: a run of wrk between two readings of its CPU
# time, and a plain client.
#
#   my $load = Bench::Load->new(server => $server, dir => ...);
#   my $cpu = $load->pin();     # the worker's, and others for wrk; undef: one
#   $load->place();             # who runs where, as text
#   Bench::Load::wrk();         # its version
#   $load->expect($target, $bytes);        # verify the reply, note its length
#   $load->cost($target, $connections, $seconds);   # microseconds of a request
#   $load->cost(..., sub { ... });         # how many the server has worked off
#   my $socket = $load->connect($target);
#   $load->keep_alive($socket, $target, $count);    # so many requests over it
#
# A target is {server => name, path => ..., accept => coding or undef, range =>
# "first-last" or undef}.

use strict;
use warnings;

use IO::Socket::INET ();

use Bench::Machine ();

my $SCRIPT = <<'EOS';
done = function(s, latency, requests)
    local e = s.errors
    io.write(string.format("bench %.0f %.0f %d\n", s.requests, s.bytes,
                           e.connect + e.read + e.write + e.status
                           + e.timeout))
end
EOS


sub new {
    my ($class, %opt) = @_;

    my $self = bless { length => {}, %opt }, $class;

    $self->{script} = "$self->{dir}/done.lua";
    open(my $fh, '>', $self->{script}) or die "$self->{script}: $!\n";
    print {$fh} $SCRIPT;
    close($fh) or die "$self->{script}: $!\n";

    return $self;
}


sub pin {
    my ($self) = @_;

    my ($cpu, @others) = $self->{server}->pin() or return;
    $self->{cpus} = join ',', @others;

    return $cpu;
}


sub place {
    my ($self) = @_;

    return $self->{cpus} ? 'worker and wrk on CPUs of their own'
                         : 'CPUs left to the kernel';
}


sub wrk { return Bench::Machine::output_of('wrk -v') =~ s/ Copyright.*//r }


sub _name {
    my ($target) = @_;

    return join ' ', grep { defined } @$target{qw(server path range)};
}


sub _headers {
    my ($target) = @_;

    return (($target->{accept} ? "Accept-Encoding: $target->{accept}" : ()),
            ($target->{range} ? "Range: bytes=$target->{range}" : ()));
}


sub _url {
    my ($self, $target) = @_;

    return $self->{server}->url($target->{server}, $target->{path});
}


# the output of a command that must not fail, as bytes
sub _output {
    my (@command) = @_;

    open(my $fh, '-|:raw', @command) or die "$command[0]: $!\n";
    my $text = do { local $/; <$fh> // '' };
    close($fh) or die "$command[0]: exit code " . ($? >> 8) . "\n$text\n";

    return $text;
}


# wrk counts what it has read, and a run ends in the middle of replies: their
# bytes tell better how many were sent than their number.
sub expect {
    my ($self, $target, $bytes) = @_;

    my $name = _name($target);
    my $text = _output('curl', '-sik', '--http1.1', '--max-time', 30,
                       (map { ('-H', $_) } _headers($target)),
                       $self->_url($target));
    my ($head, $body) = $text =~ /^(.*?\r\n\r\n)(.*)$/s
        or die "$name: no reply\n";
    my ($coding) = $head =~ /^Content-Encoding: (\S+)\r$/m;

    my $status = $target->{range} ? 206 : 200;

    $coding //= 'identity';
    die "$name: $head" unless $head =~ m{^HTTP/1\.1 $status };
    die "$name: coding $coding\n"
        unless $coding eq ($target->{accept} // 'identity');
    die "$name: other bytes than expected\n" unless $body eq $bytes;

    $self->{length}{$name} = length $text;
}


# Where the work of a reply comes before its bytes, these do not tell what was
# done for those that were not sent when the run ended.
sub cost {
    my ($self, $target, $connections, $seconds, $worked) = @_;

    my $earlier = $worked ? $worked->() : 0;
    my $before = $self->{server}->cpu();
    my $count = $self->_run($target, $connections, $seconds);
    my $after = $self->{server}->cpu();
    $count = $worked->() - $earlier if $worked;

    return ($after - $before) / $count / 1000;
}


sub _run {
    my ($self, $target, $connections, $seconds) = @_;

    my $name = _name($target);
    my $length = $self->{length}{$name} // die "$name is not verified\n";
    my @pin = defined $self->{cpus} ? ('taskset', '-c', $self->{cpus}) : ();
    my $text = _output(@pin, 'wrk', '-t1', "-c$connections", "-d${seconds}s",
                       '--timeout', '30s', '-s', $self->{script},
                       (map { ('-H', $_) } _headers($target)),
                       $self->_url($target));
    my ($requests, $bytes, $errors) = $text =~ /^bench (\d+) (\d+) (\d+)$/m
        or die "$name: wrk says\n$text\n";
    my $count = $bytes / $length;

    die "$name: $errors errors\n" if $errors;
    die "$name: $requests replies, but bytes of $count\n"
        if !$requests || $count < $requests - 1
           || $count > $requests + $connections + 1;

    return $count;
}


sub connect {
    my ($self, $target) = @_;

    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', Proto => 'tcp',
        PeerPort => $self->{server}->port($target->{server}), Timeout => 20)
        // die "connect: $@\n";
}


sub keep_alive {
    my ($self, $socket, $target, $count) = @_;

    my $name = _name($target);
    my $length = $self->{length}{$name} // die "$name is not verified\n";
    my $request = join "\r\n", "GET /$target->{path} HTTP/1.1",
        'Host: 127.0.0.1', _headers($target), '', '';

    for (1 .. $count) {
        syswrite($socket, $request) // die "$name: $!\n";
        my $left = $length;
        while ($left > 0) {
            my $n = sysread($socket, my $data, $left);
            die "$name: a reply is too short\n" unless $n;
            $left -= $n;
        }
    }
}


1;
