package Test::Zmap::Http2;

# One HTTP/2 connection over plaintext (RFC 9113, 3.3), and its streams.
#
#   my $c = Test::Zmap::Http2->new($port, window => BYTES);
#   my $id = $c->open($uri, 'accept-encoding' => 'identity');
#   $c->read($seconds);              # one read at most; false: it has ended
#   $c->reset($id);                  # RST_STREAM, CANCEL
#   my $s = $c->stream($id);         # {status, body, done, reset}
#   $c->close();  $c->abort();       # FIN; RST
#
# done: the stream ended as it should; reset: RST_STREAM came.  window: what
# the peer may send of one stream; it is given back as the bytes are read.  Of
# a header only the status is looked at.

use strict;
use warnings;

use IO::Select ();
use Socket qw(SOL_SOCKET SO_LINGER);
use Time::HiRes ();

use Test::Zmap::Client ();

my ($DATA, $HEADERS, $RST_STREAM, $SETTINGS, $PING, $WINDOW_UPDATE)
    = (0, 1, 3, 4, 6, 8);

# RFC 7541, appendix A: 8 to 14
my @STATUS = (200, 204, 206, 304, 400, 404, 500);


sub new {
    my ($class, $port, %opt) = @_;

    my $self = bless { http1 => Test::Zmap::Client->new(port => $port,
                           timeout => $opt{timeout} || 10),
                       buffer => '', next => 1, streams => {} }, $class;

    $self->_send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                 . _frame($SETTINGS, 0, 0, pack('nN', 4, $opt{window}))
                 . _frame($WINDOW_UPDATE, 0, 0, pack('N', 1 << 30)));

    return $self;
}


sub _frame {
    my ($type, $flags, $id, $payload) = @_;

    return substr(pack('N', length $payload), 1)
        . pack('CCN', $type, $flags, $id) . $payload;
}


sub _send { return $_[0]{http1}->send($_[1]) }
sub close { return $_[0]{http1}->close() }
sub abort { return $_[0]{http1}->abort() }
sub stream { return $_[0]{streams}{$_[1]} }


sub open {
    my ($self, $uri, @headers) = @_;

    my $id = $self->{next};
    $self->{next} += 2;
    $self->{streams}{$id} = { status => 0, body => '', done => 0, reset => 0 };

    # GET, http; literals without indexing
    my $block = "\x82\x86" . "\x04" . pack('C/a', $uri)
        . "\x01" . pack('C/a', 'localhost');
    $block .= "\x00" . pack('C/a C/a', splice @headers, 0, 2) while @headers;

    # END_STREAM, END_HEADERS
    $self->_send(_frame($HEADERS, 5, $id, $block));

    return $id;
}


sub reset {
    my ($self, $id) = @_;

    $self->{streams}{$id}{left} = 1;
    $self->_send(_frame($RST_STREAM, 0, $id, pack('N', 8)));
}


sub read {
    my ($self, $seconds) = @_;

    my $socket = $self->{http1}{socket};
    return 1 unless IO::Select->new($socket)->can_read($seconds);

    my $n = sysread($socket, $self->{buffer}, 65536, length $self->{buffer});
    return $!{EAGAIN} || $!{EINTR} if !defined $n;
    return 0 if !$n;

    while (length $self->{buffer} >= 9) {
        my ($high, $low, $type, $flags, $id)
            = unpack 'CnCCN', $self->{buffer};
        my $size = $high << 16 | $low;
        last if length $self->{buffer} < 9 + $size;
        my $payload = substr substr($self->{buffer}, 0, 9 + $size, ''), 9;
        $self->_take($type, $flags, $id, $payload);
    }

    return 1;
}


sub _take {
    my ($self, $type, $flags, $id, $payload) = @_;

    my $s = $self->{streams}{$id} // {};

    if ($type == $SETTINGS || $type == $PING) {
        $self->_send(_frame($type, 1, 0, $type == $PING ? $payload : ''))
            if !($flags & 1);

    } elsif ($type == $HEADERS) {
        $s->{status} = _status($payload);

    } elsif ($type == $RST_STREAM) {
        $s->{reset} = 1;

    } elsif ($type == $DATA && length $payload) {
        $s->{body} .= $payload;
        my $update = pack('N', length $payload);
        $self->_send(_frame($WINDOW_UPDATE, 0, 0, $update)
                     . ($flags & 1 || $s->{left} ? ''
                        : _frame($WINDOW_UPDATE, 0, $id, $update)));
    }

    $s->{done} = 1 if ($type == $DATA || $type == $HEADERS) && $flags & 1;
}


sub _status {
    my ($block) = @_;

    $block =~ s/^[\x20-\x3f]//;
    my $first = ord $block;

    return $STATUS[$first - 0x88] // 0 if $first & 0x80;

    return substr($block, 2, 3);
}


1;
