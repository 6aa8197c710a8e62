package Gate;

# Holds the jobs of a worker's threads: the orders for gate.c.
#
#   use lib 't/lib', 't/preload';
#   my $gate = Gate->new($t);
#   $gate->run($conf);           # instead of $t->run($conf)
#   $gate->shut();               # before the next fstat of a thread: decoded
#                                # or walked, and not compared with its file
#   $gate->shut(pass => 2);      # before the third one from now on; of those
#                                # that are held, so many go on
#   $gate->shut(call => 'pread');
#   $gate->held(2)               # waits until two threads are held (default 1)
#   $gate->open();               # all go on
#   $gate->forget();             # those that were held and were killed
#   $gate->ahead($msec);         # a job has that time before the event loop,
#                                # which has just started it, goes on
#   $gate->advance($seconds);    # nginx's clocks; seen with its next event

use strict;
use warnings;

use Preload ();

our @ISA = ('Preload');

my %CALL = (fstat => 1, pread => 2);
my @all;


sub source { return 't/preload/gate.c' }
sub variable { return 'ZMAP_GATE' }


sub new {
    my ($class, $t) = @_;

    push @all, my $self = $class->SUPER::new($t);

    return $self;
}


# a test that dies leaves no worker behind that cannot end
END { $_->open() for @all }


# the bits go last: they are what shuts it
sub shut {
    my ($self, %opt) = @_;

    $self->_write(4, pack 'l', $opt{pass} // 0);
    $self->_write(0, pack 'L', $CALL{$opt{call} // 'fstat'});
}


sub open {
    my ($self) = @_;

    $self->_write(0, pack 'L', 0);
}


sub held {
    my ($self, $count) = @_;

    return $self->{t}->poll(sub { $self->held_now() >= ($count // 1) });
}


sub held_now {
    my ($self) = @_;

    return unpack 'L', $self->_read(8, 4);
}


sub forget {
    my ($self) = @_;

    $self->_write(8, pack 'L', 0);
}


sub ahead {
    my ($self, $msec) = @_;

    $self->_write(16, pack 'L', $msec);
}


sub advance {
    my ($self, $seconds) = @_;

    $self->{ahead} += $seconds;
    $self->_write(12, pack 'L', $self->{ahead});
}


1;
