package Test::Zmap::Http2;

# One HTTP/2 connection, for what curl cannot do: to reset a stream and go on.
#
#   my $h2 = Test::Zmap::Http2->new($t, port => N);   # without TLS
#   my $id = $h2->get($uri, @headers);     # "name: value", in lower case
#   my $bytes = $h2->read($id, $n);        # $n at least, unless it ended
#   $h2->reset($id);                       # RST_STREAM, CANCEL
#   my ($status, $body) = $h2->response($id);   # status 0: it did not end well
#
# Of the headers of a response only the status is understood, and it only where
# it is 200, 206, 304 or 404.

use strict;
use warnings;

use Socket qw(IPPROTO_TCP TCP_NODELAY);

my %TYPE = (data => 0, headers => 1, reset => 3, settings => 4, ping => 6,
            goaway => 7, update => 8);

my ($END_STREAM, $END_HEADERS, $ACK) = (1, 4, 1);

# RFC 7541, appendix A: an index of the static table in one byte
my %STATUS = (0x88 => 200, 0x8a => 206, 0x8b => 304, 0x8d => 404);


sub new {
    my ($class, $t, %opt) = @_;

    my $c = $t->connect(port => $opt{port});
    my $self = bless { c => $c, last => -1, streams => {} }, $class;

    # small frames would wait for the answer to the one before
    setsockopt($c->{socket}, IPPROTO_TCP, TCP_NODELAY, 1);

    $c->send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    $self->_send('settings', 0, 0, '');

    return $self;
}


sub _send {
    my ($self, $type, $flags, $id, $payload) = @_;

    my $head = pack('CnCCN', length($payload) >> 16,
                    length($payload) & 0xffff, $TYPE{$type}, $flags, $id);
    $self->{c}->send($head . $payload) or die "$type cannot be sent\n";
}


# without an index of the table, without Huffman's code (RFC 7541, 6.2.2)
sub _literal {
    my ($name, $value) = @_;

    die "$name is too long\n" if length $name > 126 || length $value > 126;

    return pack 'C C/a C/a', 0, $name, $value;
}


sub get {
    my ($self, $uri, @headers) = @_;

    my $id = $self->{last} += 2;
    my @lines = ([':method', 'GET'], [':scheme', 'http'], [':path', $uri],
                 [':authority', 'localhost'],
                 map { [split /: /, $_, 2] } @headers);

    $self->{streams}{$id} = { status => 0, body => '', ended => 0 };
    $self->_send('headers', $END_STREAM | $END_HEADERS, $id,
                 join '', map { _literal(@$_) } @lines);

    return $id;
}


sub read {
    my ($self, $id, $n) = @_;

    my $stream = $self->{streams}{$id};
    while (length $stream->{body} < $n && !$stream->{ended}) {
        last unless $self->_receive();
    }

    return $stream->{body};
}


sub reset {
    my ($self, $id) = @_;

    delete $self->{streams}{$id};
    $self->_send('reset', 0, $id, pack 'N', 8);
}


sub response {
    my ($self, $id) = @_;

    my $stream = $self->{streams}{$id};
    while (!$stream->{ended}) {
        last unless $self->_receive();
    }
    delete $self->{streams}{$id};

    return ($stream->{ended} == 1 ? $stream->{status} : 0, $stream->{body});
}


# one frame; false at the end of the connection
sub _receive {
    my ($self) = @_;

    my $head = $self->{c}->read_some(9);
    return 0 if length $head < 9;

    my ($high, $low, $type, $flags, $id) = unpack 'CnCCN', $head;
    my $payload = $self->{c}->read_some($high << 16 | $low);
    my $stream = $self->{streams}{$id};

    return 0 if $type == $TYPE{goaway};
    $self->_send('settings', $ACK, 0, '')
        if $type == $TYPE{settings} && !($flags & $ACK);
    $self->_send('ping', $ACK, 0, $payload)
        if $type == $TYPE{ping} && !($flags & $ACK);
    $self->_data($id, $stream, $payload) if $type == $TYPE{data};
    return 1 unless $stream;

    $stream->{ended} = 2 if $type == $TYPE{reset};
    $stream->{status} = _status($payload) if $type == $TYPE{headers};
    $stream->{ended} = 1 if $flags & $END_STREAM
        && ($type == $TYPE{data} || $type == $TYPE{headers});

    return 1;
}


# what comes for a stream that was reset counts for the connection
sub _data {
    my ($self, $id, $stream, $bytes) = @_;

    return if !length $bytes;
    $self->_send('update', 0, 0, pack 'N', length $bytes);
    return unless $stream;
    $stream->{body} .= $bytes;
    $self->_send('update', 0, $id, pack 'N', length $bytes);
}


# it comes first, but for a change of the table's size
sub _status {
    my ($block) = @_;

    my ($byte) = grep { $_ & 0x80 || !($_ & 0x20) } unpack 'C2', $block;

    return $STATUS{$byte // 0} // 0;
}


sub close { $_[0]{c}->close() }


1;
