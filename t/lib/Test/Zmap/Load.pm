package Test::Zmap::Load;

# Clients that ask for files until they are told to stop, and judge each reply.
#
#   my $load = Test::Zmap::Load->start($t, \%files, kinds => [qw(fresh kept)],
#                                      seed => 1, slow_port => $port);
#   ... signals, reloads ...
#   my $count = $load->stop();
#   # {complete, cut, refused, wrong, lost, ended, faults => ["...", ...]}
#
# %files: uri => {zstd => [bytes ...], identity => [bytes ...]}; more than one
# where the file changes; a coding may be left out.  A kind is one process:
# fresh (a connection for each request), kept (a connection for many), slow
# (small receive buffer, pauses; slow_port should have a small sndbuf).
# complete: one of the bodies, in full.  cut: ended before the end that its
# head promises.  refused: another status.  lost: no head came.  ended: nor did
# it on a connection that had been kept and may have been closed before the
# request.  wrong: looks complete and is not, or never came in time.  faults:
# what is known of those that are not complete, "cut: ...", at most ten of a
# result of a client.

use strict;
use warnings;

use Digest::MD5 qw(md5);
use POSIX ();
use Test::More ();
use Time::HiRes qw(sleep);

my @NAMES = qw(complete cut refused wrong lost ended);
my $FAULTS = 10;


sub start {
    my ($class, $t, $files, %opt) = @_;

    my $self = bless { t => $t, asks => [], pids => [], pipes => [],
                       port => $opt{slow_port} // $t->port() }, $class;

    for my $uri (sort keys %$files) {
        for my $coding (sort keys %{$files->{$uri}}) {
            my %valid = map { md5($_) => 1 } @{$files->{$uri}{$coding}};
            push @{$self->{asks}}, [$uri, $coding, \%valid];
        }
    }

    my $n = 0;
    $self->_client($_, ++$n + ($opt{seed} // 1)) for @{$opt{kinds}};

    return $self;
}


sub _client {
    my ($self, $kind, $seed) = @_;

    # a stop() that comes before the handler is there waits for it
    my $term = POSIX::SigSet->new(POSIX::SIGTERM());
    POSIX::sigprocmask(POSIX::SIG_BLOCK(), $term);

    my $pid = open(my $pipe, '-|') // die "fork: $!";
    if ($pid) {
        POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $term);
        push @{$self->{pids}}, $pid;
        push @{$self->{pipes}}, $pipe;
        return;
    }

    my $stop = 0;
    $SIG{TERM} = sub { $stop = 1 };
    POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $term);
    srand($seed);

    my %count = (faults => []);
    my $ok = eval { $self->_ask($kind, \%count) while !$stop; 1 };
    print STDERR "# $kind client: $@" if !$ok;
    print map { "$_\n" } join(' ', map { $count{$_} // 0 } @NAMES),
        @{$count{faults}} if $ok;
    close(STDOUT);
    POSIX::_exit(0);
}


sub _ask {
    my ($self, $kind, $count) = @_;

    my $ask = $self->{asks}[rand @{$self->{asks}}];
    my ($uri, $coding, $valid) = @$ask;
    my @headers = ("Accept-Encoding: $coding");
    push @headers, 'Connection: close' if $kind ne 'kept';

    my $kept = delete $self->{connection};
    my $c = $kept // eval {
        $self->{t}->connect($kind eq 'slow'
                            ? (rcvbuf => 4096, port => $self->{port}) : ());
    };
    return _count($count, 'lost', "$kind $uri, $coding: $@") if !$c;

    my $r = $kind eq 'slow' ? _read_slowly($c, $uri, \@headers)
        : $c->request('GET', $uri, headers => \@headers);

    _count($count, _judge($r, $kept, $valid),
           "$kind $uri, $coding: status " . $r->status . ', '
           . length($r->body) . ' bytes' . ($r->reset ? ', reset' : '')
           . ($r->timed_out ? ', late' : ''));

    if ($kind eq 'kept' && $r->complete
        && ($r->header('Connection') // '') ne 'close')
    {
        $self->{connection} = $c;
        return;
    }

    $c->close();
}


sub _judge {
    my ($r, $kept, $valid) = @_;

    return 'wrong' if $r->timed_out;
    return $kept ? 'ended' : 'lost' if !length $r->head;
    return 'refused' if $r->status != 200;
    return 'cut' if !$r->complete;

    return $valid->{md5($r->body)} ? 'complete' : 'wrong';
}


sub _count {
    my ($count, $result, $what) = @_;

    $count->{$result}++;
    return if $result eq 'complete' || $count->{$result} > $FAULTS;

    push @{$count->{faults}}, "$result: " . $what =~ s/\s+$//r;
}


sub _read_slowly {
    my ($c, $uri, $headers) = @_;

    $c->send_request('GET', $uri, headers => $headers);
    my $got = '';
    for (1 .. 4) {
        my $some = $c->read_some(5000);
        $got .= $some;
        last if length $some < 5000;
        sleep(rand 0.05);
    }
    $c->{buffer} = $got . $c->{buffer};

    return $c->response('GET');
}


sub stop {
    my ($self) = @_;

    my %total = (faults => [], map { $_ => 0 } @NAMES);

    CORE::kill('TERM', @{$self->{pids}});

    for my $pipe (@{$self->{pipes}}) {
        my @counts = split ' ', readline($pipe) // '';
        push @{$total{faults}}, map { s/\n//r } readline($pipe);
        $total{$NAMES[$_]} += $counts[$_] for 0 .. $#counts;
        local $?;
        close($pipe);
        next if @counts == @NAMES;
        $total{wrong}++;
        push @{$total{faults}}, "wrong: a client ended with $?";
    }

    $self->{pids} = [];
    Test::More::note(join ', ', map { "$total{$_} $_" } @NAMES);

    return \%total;
}


sub DESTROY {
    my ($self) = @_;

    CORE::kill('TERM', @{$self->{pids}}) if @{$self->{pids}};
}


1;
