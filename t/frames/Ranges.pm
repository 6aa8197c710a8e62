package Ranges;

# Random ranges of one file, each compared with the body.
#
#   use lib 't/lib', 't/frames';
#   my $ranges = Ranges->new($t, $uri, $body, @headers);
#                                       # $body: as Body, with size and bytes()
#   is($ranges->fault($r, $first, $last), '');      # what is wrong with a 206
#   is(join("\n", $ranges->random($count, $seed)), '');   # with the replies
#   $ranges->ask($header, $first, $last)            # '', or what is wrong
#   $ranges->close
#
# Random ranges have 1 byte to 1 MB, small ones as often as large ones; every
# eighth has an open end, every eighth is a suffix.  They and ask() go over one
# connection.

use strict;
use warnings;

my $LARGEST = 1_000_000;


sub new {
    my ($class, $t, $uri, $body, @headers) = @_;

    return bless { t => $t, uri => $uri, body => $body, headers => \@headers },
        $class;
}


sub fault {
    my ($self, $r, $first, $last) = @_;

    my $n = $last - $first + 1;
    my $want = sprintf '206 bytes %d-%d/%d %d - complete', $first, $last,
        $self->{body}->size, $n;
    my $seen = join ' ', $r->status, $r->header('Content-Range') // '-',
        $r->header('Content-Length') // '-', $r->header('Accept-Ranges')
        // '-', $r->complete ? 'complete' : 'cut';

    return "$seen, not $want" if $seen ne $want;
    return $r->body eq $self->{body}->bytes($first, $n) ? '' : 'other bytes';
}


sub ask {
    my ($self, $range, $first, $last) = @_;

    my $c = $self->{connection} //= $self->{t}->connect();
    my $r = $c->get($self->{uri}, @{$self->{headers}}, "Range: bytes=$range");
    my $fault = $self->fault($r, $first, $last);

    $self->close() if $fault;

    return $fault && "$range: $fault";
}


sub random {
    my ($self, $count, $seed) = @_;

    my @faults;

    srand($seed);
    for my $i (1 .. $count) {
        my $fault = $self->ask($self->_choose($i));
        push @faults, $fault if $fault;
        last if @faults > 9;
    }
    $self->close();

    return @faults;
}


# what to ask for, and the first and last byte of it
sub _choose {
    my ($self, $i) = @_;

    my $size = $self->{body}->size;
    my $most = $size < $LARGEST ? $size : $LARGEST;
    my $n = 1 + int(exp(rand(log $most)));
    my $first = int(rand($size - $n + 1));
    my $last = $first + $n - 1;

    return ("-$n", $size - $n, $size - 1) if $i % 8 == 0;
    return ($size - $n . '-', $size - $n, $size - 1) if $i % 8 == 4;

    return ("$first-$last", $first, $last);
}


sub close {
    my ($self) = @_;

    my $c = delete $self->{connection} or return;
    $c->close();
}


1;
