package Test::Zmap::Client;

# One HTTP/1.x connection over a raw socket, and curl for TLS and HTTP/2.
#
# One-shot requests on the test object ("Connection: close"):
#   $r = $t->get($uri, @headers);            # also head, post($uri, $body, ..)
#   $r = $t->request($method, $uri, %opt);   # headers => [..], body => ..,
#                                            # version => '1.0', port => N
#   $r = $t->raw($bytes);                    # any bytes, answer to a GET
#   $r = $t->curl(@args, $url);              # ->exit, status, headers, body
#   ($cert, $key) = $t->certificate();
#
# A connection of one's own:
#   $c = $t->connect(port => N, rcvbuf => BYTES);
#   $r = $c->get($uri, @headers);            # keep-alive; also head, request
#   $c->send($bytes);  $c->send_request($method, $uri, %opt);
#   $bytes = $c->read_some($n);              # exactly n unless the peer ended
#   $r = $c->response($method);              # the next response, with what
#                                            # read_some() left
#   $r = $c->response_head();                # its head only; then
#   $n = $c->read_body($r, sub { ... });     # the body in pieces, the bytes of
#                                            # it, and $r->complete
#   $c->close;  $c->abort;                   # FIN; RST
#
# A header is one string "Name: value"; the same name may come twice.  "Host"
# is added unless it is given.
#
# A response: status, reason, version, header($name) (all values joined by
# ", ", or undef), header_lines($name), header_names, head (raw text), body,
# complete, reset, timed_out.  complete means that the message ended as its
# framing says: Content-Length satisfied, last chunk seen, or, when the close
# delimits it, an orderly end.  An answer that never came has status 0.

use strict;
use warnings;

use Errno qw(EAGAIN EINTR EINPROGRESS ECONNRESET EPIPE ETIMEDOUT);
use IO::Select ();
use IO::Socket::INET ();
use Socket qw(SOL_SOCKET SO_ERROR SO_RCVBUF SO_LINGER);
use Time::HiRes ();

# of read_body()
my $PIECE = 1 << 20;


sub new {
    my ($class, %opt) = @_;

    socket(my $socket, Socket::PF_INET(), Socket::SOCK_STREAM(), 0)
        or die "socket: $!";
    setsockopt($socket, SOL_SOCKET, SO_RCVBUF, pack('i', $opt{rcvbuf}))
        if $opt{rcvbuf};
    binmode $socket;
    $socket->blocking(0);

    my $self = bless { socket => $socket, buffer => '', eof => 0, reset => 0,
                       late => 0, timeout => $opt{timeout} || 10 }, $class;
    $self->_connect($opt{port}) or die "connect to port $opt{port}: $!";

    return $self;
}


# A connect() that a signal interrupts goes on without its caller, and waits
# even on loopback: for the work that the kernel has deferred, for room in the
# queue of the listener.
sub _connect {
    my ($self, $port) = @_;

    my $deadline = Time::HiRes::time() + $self->{timeout};
    my $select = IO::Select->new($self->{socket});

    return 1 if connect($self->{socket}, Socket::pack_sockaddr_in($port,
                        Socket::inet_aton('127.0.0.1')));
    return 0 unless $! == EINPROGRESS || $! == EINTR;

    while (!$select->can_write($deadline - Time::HiRes::time())) {
        next if Time::HiRes::time() < $deadline;
        $! = ETIMEDOUT;
        return 0;
    }

    $! = unpack 'i', getsockopt($self->{socket}, SOL_SOCKET, SO_ERROR);

    return $! == 0;
}


sub close {
    my ($self) = @_;

    CORE::close(delete $self->{socket}) if $self->{socket};
}


sub abort {
    my ($self) = @_;

    setsockopt($self->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
    $self->close();
}


sub send {
    my ($self, $bytes) = @_;

    my $deadline = Time::HiRes::time() + $self->{timeout};
    my $select = IO::Select->new($self->{socket});
    my $sent = 0;

    while ($sent < length $bytes) {
        my $n = syswrite($self->{socket}, $bytes, 65536, $sent);
        if (defined $n) {
            $sent += $n;
            next;
        }
        return 0 unless $! == EAGAIN || $! == EINTR;
        my $left = $deadline - Time::HiRes::time();
        return 0 if $left <= 0;
        $select->can_write($left);
    }

    return 1;
}


sub send_request {
    my ($self, $method, $uri, %opt) = @_;

    my @headers = @{$opt{headers} || []};
    my $version = $opt{version} // '1.1';

    unshift @headers, 'Host: localhost' unless grep { /^host:/i } @headers;
    push @headers, 'Content-Length: ' . length $opt{body}
        if defined $opt{body};

    return $self->send(join("\r\n", "$method $uri HTTP/$version", @headers)
                       . "\r\n\r\n" . ($opt{body} // ''));
}


sub request {
    my ($self, $method, $uri, %opt) = @_;

    $self->send_request($method, $uri, %opt);

    return $self->response($method);
}


sub get {
    my ($self, $uri, @headers) = @_;

    return $self->request('GET', $uri, headers => \@headers);
}


sub head {
    my ($self, $uri, @headers) = @_;

    return $self->request('HEAD', $uri, headers => \@headers);
}


# one read; false at the end of the stream or of the time
sub _fill {
    my ($self, $deadline) = @_;

    return 0 if $self->{eof};

    my $select = IO::Select->new($self->{socket});
    while (1) {
        my $n = sysread($self->{socket}, $self->{buffer}, 262144,
                        length $self->{buffer});
        return 1 if $n;
        if (defined $n || $! == ECONNRESET || $! == EPIPE) {
            $self->{reset} = 1 unless defined $n;
            $self->{eof} = 1;
            return 0;
        }
        die "read: $!" unless $! == EAGAIN || $! == EINTR;
        my $left = $deadline - Time::HiRes::time();
        if ($left <= 0) {
            $self->{late} = 1;
            return 0;
        }
        $select->can_read($left);
    }
}


sub _fill_to {
    my ($self, $size, $deadline) = @_;

    while (length $self->{buffer} < $size) {
        return 0 unless $self->_fill($deadline);
    }

    return 1;
}


sub _take {
    my ($self, $size) = @_;

    return substr $self->{buffer}, 0, $size, '';
}


sub read_some {
    my ($self, $size) = @_;

    my $deadline = Time::HiRes::time() + $self->{timeout};
    while (length $self->{buffer} < $size) {
        last unless $self->_fill_at_most($size - length $self->{buffer},
                                         $deadline);
    }

    return $self->_take($size);
}


# A slow reader must leave in the socket what it does not want yet.
sub _fill_at_most {
    my ($self, $size, $deadline) = @_;

    return 0 if $self->{eof};
    my $left = $deadline - Time::HiRes::time();
    if ($left <= 0) {
        $self->{late} = 1;
        return 0;
    }
    return 1 unless IO::Select->new($self->{socket})->can_read($left);

    my $n = sysread($self->{socket}, $self->{buffer}, $size,
                    length $self->{buffer});
    return 1 if $n || !defined $n && ($! == EAGAIN || $! == EINTR);
    $self->{reset} = 1 unless defined $n;
    $self->{eof} = 1;

    return 0;
}


sub response {
    my ($self, $method) = @_;

    my $deadline = Time::HiRes::time() + $self->{timeout};
    my $r = Test::Zmap::Response->new();

    do {
        $r->parse_head($self->_head($deadline));
    } while ($r->status >= 100 && $r->status < 200 && $r->status != 101);

    $self->_body($r, $method // 'GET', $deadline) if $r->status;
    $r->{reset} = $self->{reset};
    $r->{timed_out} = $self->{late};

    return $r;
}


sub _head {
    my ($self, $deadline) = @_;

    my $end;
    while (($end = index $self->{buffer}, "\r\n\r\n") < 0) {
        return '' unless $self->_fill($deadline);
    }

    return $self->_take($end + 4);
}


sub _body {
    my ($self, $r, $method, $deadline) = @_;

    if ($method eq 'HEAD' || $r->status == 204 || $r->status == 304) {
        $r->{complete} = 1;
        return;
    }

    my $length = $r->header('Content-Length');
    my $coding = $r->header('Transfer-Encoding') // '';

    return $self->_chunked($r, $deadline) if lc $coding eq 'chunked';
    return $self->_sized($r, $length, $deadline) if defined $length;

    while ($self->_fill($deadline)) { }
    $r->{body} = $self->_take(length $self->{buffer});
    $r->{complete} = $self->{eof} && !$self->{reset} ? 1 : 0;
}


sub _sized {
    my ($self, $r, $length, $deadline) = @_;

    return unless $length =~ /^\d+$/;
    $r->{complete} = $self->_fill_to($length, $deadline);
    $r->{body} = $self->_take($length);
}


sub _chunked {
    my ($self, $r, $deadline) = @_;

    while (1) {
        my $line = $self->_line($deadline) // return;
        my ($hex) = $line =~ /^([0-9a-fA-F]{1,15})\s*(?:;.*)?$/ or return;
        my $size = hex $hex;

        if ($size == 0) {
            my $trailer = $self->_line($deadline);
            $r->{complete} = defined $trailer && $trailer eq '' ? 1 : 0;
            return;
        }

        my $whole = $self->_fill_to($size + 2, $deadline);
        $r->{body} .= $self->_take($size);
        return unless $whole && $self->_take(2) eq "\r\n";
    }
}


# What is too large to be held in memory.  The timeout is of a piece.
sub response_head {
    my ($self) = @_;

    my $r = Test::Zmap::Response->new();
    $r->parse_head($self->_head(Time::HiRes::time() + $self->{timeout}));

    return $r;
}


sub read_body {
    my ($self, $r, $fn) = @_;

    my $length = $r->header('Content-Length');
    my $coding = $r->header('Transfer-Encoding') // '';
    my $total = 0;

    if (lc $coding ne 'chunked') {
        $r->{complete} = $self->_pieces($length // 0, \$total, $fn);

    } else {
        while (my $size = $self->_chunk_size()) {
            last unless $self->_pieces($size, \$total, $fn)
                        && $self->read_some(2) eq "\r\n";
        }
        $r->{complete} = $self->{last_chunk} && $self->read_some(2) eq "\r\n"
            ? 1 : 0;
    }

    $r->{reset} = $self->{reset};
    $r->{timed_out} = $self->{late};

    return $total;
}


sub _chunk_size {
    my ($self) = @_;

    my $line = $self->_line(Time::HiRes::time() + $self->{timeout}) // '';
    my ($hex) = $line =~ /^([0-9a-fA-F]{1,15})\s*(?:;.*)?$/;
    $self->{last_chunk} = defined $hex && hex $hex == 0;

    return defined $hex ? hex $hex : 0;
}


# true when all of size bytes came
sub _pieces {
    my ($self, $size, $total, $fn) = @_;

    while ($size > 0) {
        my $want = $size < $PIECE ? $size : $PIECE;
        $self->_fill_to($want, Time::HiRes::time() + $self->{timeout});
        my $bytes = $self->_take($want);
        $size -= length $bytes;
        $$total += length $bytes;
        $fn->($bytes) if length $bytes;
        return 0 if length $bytes < $want;
    }

    return 1;
}


sub _line {
    my ($self, $deadline) = @_;

    my $end;
    while (($end = index $self->{buffer}, "\r\n") < 0) {
        return undef unless $self->_fill($deadline);
    }

    return substr $self->_take($end + 2), 0, $end;
}


package Test::Zmap::Response;


sub new {
    my ($class) = @_;

    return bless { status => 0, reason => '', version => '', head => '',
                   lines => [], body => '', complete => 0, reset => 0,
                   timed_out => 0, exit => undef, stderr => '' }, $class;
}


sub status    { return $_[0]{status} }
sub reason    { return $_[0]{reason} }
sub version   { return $_[0]{version} }
sub head      { return $_[0]{head} }
sub body      { return $_[0]{body} }
sub complete  { return $_[0]{complete} }
sub reset     { return $_[0]{reset} }
sub timed_out { return $_[0]{timed_out} }
sub exit      { return $_[0]{exit} }      # of curl
sub stderr    { return $_[0]{stderr} }    # of curl


sub parse_head {
    my ($self, $head) = @_;

    $self->{head} = $head;
    $self->{status} = 0;
    $self->{lines} = [];

    my ($first, @lines) = split /\r\n/, $head;
    return unless ($first // '')
                  =~ m{^HTTP/(\d(?:\.\d)?) (\d{3})(?: (.*))?$};
    @{$self}{qw(version status reason)} = ($1, $2, $3 // '');

    for my $line (@lines) {
        push @{$self->{lines}}, [$1, $2] if $line =~ /^([^:]+):[ \t]*(.*?)\s*$/;
    }
}


sub header_lines {
    my ($self, $name) = @_;

    return map { $_->[1] } grep { lc $_->[0] eq lc $name } @{$self->{lines}};
}


sub header {
    my ($self, $name) = @_;

    my @values = $self->header_lines($name);

    return @values ? join(', ', @values) : undef;
}


sub header_names { return map { $_->[0] } @{$_[0]{lines}} }


package Test::Zmap::Client::Factory;


sub connect {
    my ($self, %opt) = @_;

    return Test::Zmap::Client->new(timeout => $self->{timeout},
        %opt, port => $opt{port} // $self->port());
}


sub request {
    my ($self, $method, $uri, %opt) = @_;

    my $c = $self->connect(port => $opt{port});
    my $headers = $opt{headers} || [];
    $headers = [@$headers, 'Connection: close']
        unless grep { /^connection:/i } @$headers;

    my $r = $c->request($method, $uri, %opt, headers => $headers);
    $c->close();

    return $r;
}


sub get {
    my ($self, $uri, @headers) = @_;

    return $self->request('GET', $uri, headers => \@headers);
}


sub head {
    my ($self, $uri, @headers) = @_;

    return $self->request('HEAD', $uri, headers => \@headers);
}


sub post {
    my ($self, $uri, $body, @headers) = @_;

    return $self->request('POST', $uri, body => $body, headers => \@headers);
}


sub raw {
    my ($self, $bytes, %opt) = @_;

    my $c = $self->connect(port => $opt{port});
    $c->send($bytes);
    my $r = $c->response($opt{method});
    $c->close();

    return $r;
}


# complete here means that curl ended with 0
sub curl {
    my ($self, @args) = @_;

    my $base = 'curl.' . ++$self->{curls};
    my ($code, $output) = $self->capture('curl', '-q', '-sS', '-k',
        '--noproxy', '*', '--max-time', int($self->{timeout} * 2) + 1,
        '-D', "$self->{run}/$base.head", '-o', "$self->{run}/$base.body",
        @args);

    my $r = Test::Zmap::Response->new();
    my @heads = $self->_slurp("$base.head") =~ /(HTTP\/.*?\r\n\r\n)/sg;
    $r->parse_head($heads[-1]) if @heads;
    $r->{body} = $self->_slurp("$base.body");
    $r->{exit} = $code;
    $r->{stderr} = $output;
    $r->{complete} = $code == 0 ? 1 : 0;

    return $r;
}


sub certificate {
    my ($self) = @_;

    my ($cert, $key) = map { "$self->{run}/localhost.$_" } qw(crt key);
    return ($cert, $key) if -e $cert;

    my ($code, $output) = $self->capture('openssl', 'req', '-x509', '-nodes',
        '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1',
        '-subj', '/CN=localhost', '-days', '2', '-keyout', $key,
        '-out', $cert);
    die "openssl: $output" if $code;

    return ($cert, $key);
}


1;
