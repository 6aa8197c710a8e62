package Preload;

# Fails system calls and allocations of a worker, or truncates a file at a
# call: the orders for fault.c.
#
#   use lib 't/lib', 't/preload';
#   my $fault = Preload->new($t);
#   $fault->run($conf);                      # instead of $t->run($conf)
#   $fault->arm('mmap', 2, errno => ENOMEM); # the second mmap from now on
#   ... a request ...
#   $fault->fired()                          # how often it came to that
#
# arm($calls, $n, %opt): $calls is "mmap", "fstat|pread" ..; errno => E makes
# the n-th of them fail, truncate => [$path, $size] makes it and truncates the
# file, short => 1 makes a pread that gives half, end => 1 a pread that finds
# the end of the file, lose => [$path, $offset] makes an mmap and puts the first
# page of another file at that offset of it: an empty one has none, and reading
# there raises SIGBUS.  always => 1: every call from
# the n-th on.  any => 1: calls of nginx itself, too.  pid => the only worker.
# order => 1: the second of two orders that hold at the same time; also for
# fired().
#   $fault->count($calls);  $fault->counted()  # how many are made from now on
#   $fault->advance($seconds);               # nginx's monotonic clock

use strict;
use warnings;

use Errno qw(ENOMEM);

my $SIZE = 32 + 8 + 1024;        # of fault_orders_t
my $CLOCK = 3072;                # offset in the orders
my $NEVER = 1 << 30;

my %CALL = (mmap => 1, fstat => 2, pread => 4, alloc => 8, sigaction => 16,
            madvise => 32, munmap => 64, setsockopt => 128, getrandom => 256);


# of a library like this one
sub source { return 't/preload/fault.c' }
sub variable { return 'ZMAP_FAULT' }


sub new {
    my ($class, $t) = @_;

    my $source = $class->source();
    my ($name) = $source =~ m{([^/]+)\.c$};
    my $library = $t->run_dir() . "/$name.so";
    my ($code, $output) = $t->capture('gcc', '-std=gnu11', '-O1', '-g',
        '-fno-omit-frame-pointer', '-fno-builtin', '-Wall', '-Wextra',
        '-Werror', '-shared', '-fPIC', '-o', $library, $source, '-ldl');
    die "$source: $output" if $code;

    my $self = bless { t => $t, library => $library,
                       orders => $t->run_dir() . "/$name.orders",
                       ahead => 0 }, $class;
    $self->_write(0, pack 'x4096');

    return $self;
}


sub _write {
    my ($self, $offset, $bytes) = @_;

    open(my $fh, '+>>', $self->{orders}) or die "$self->{orders}: $!";
    close($fh);
    open($fh, '+<:raw', $self->{orders}) or die "$self->{orders}: $!";
    sysseek($fh, $offset, 0) // die "$self->{orders}: $!";
    syswrite($fh, $bytes) == length $bytes or die "$self->{orders}: $!";
    close($fh);
}


# LeakSanitizer knows by the caller what the dynamic linker keeps for ever,
# and here the caller is fault.so: its list of suppressions gets one more.
sub _leak_options {
    my ($self) = @_;

    my @given = split /:/, $ENV{LSAN_OPTIONS} // '';
    my ($old) = map { /^suppressions=(.*)/ ? $1 : () } @given;
    my $text = '';

    if (defined $old) {
        open(my $fh, '<', $old) or die "$old: $!";
        local $/;
        $text = <$fh>;
    }

    my $new = $self->{t}->run_dir() . '/leaks.supp';
    open(my $fh, '>', $new) or die "$new: $!";
    print $fh map({ "leak:$_\n" } qw(add_to_global_resize _dl_map_object_deps)),
        $text;
    close($fh) or die "$new: $!";

    return join ':', (grep { !/^suppressions=/ } @given),
        "suppressions=$new";
}


# The library comes before a sanitizer's: its calls then go through both.
sub run {
    my ($self, $conf) = @_;

    local $ENV{LD_PRELOAD} = $self->{library};
    local $ENV{$self->variable()} = $self->{orders};
    local $ENV{ASAN_OPTIONS} = join ':', $ENV{ASAN_OPTIONS} // (),
        'verify_asan_link_order=0';
    local $ENV{LSAN_OPTIONS} = $self->_leak_options();

    return $self->{t}->run($conf);
}


sub arm {
    my ($self, $calls, $n, %opt) = @_;

    my $bits = 0;
    $bits |= $CALL{$_} // die "no call $_\n" for split /\|/, $calls;

    my ($path, $size) = @{$opt{truncate} || $opt{lose} || ['', 0]};
    my $action = $opt{truncate} ? 2 : $opt{short} ? 3 : $opt{end} ? 4
        : $opt{lose} ? 5 : 1;
    my $pid = $opt{pid} // ($self->{t}->worker_pids())[0];
    my $offset = ($opt{order} // 0) * $SIZE;

    # the bits go last: they are what sets it off
    $self->_write($offset, pack 'L8 Q a1024', 0, $action,
        $opt{errno} // ENOMEM, $n, 0, $opt{always} ? 1 : 0,
        $opt{any} ? 1 : 0, $pid, $size, $path);
    $self->_write($offset, pack 'L', $bits);
}


sub disarm {
    my ($self) = @_;

    $self->_write($_ * $SIZE, pack 'L', 0) for 0, 1;
}


sub _read {
    my ($self, $offset, $size) = @_;

    open(my $fh, '<:raw', $self->{orders}) or die "$self->{orders}: $!";
    sysseek($fh, $offset, 0) // die "$self->{orders}: $!";
    sysread($fh, my $bytes, $size) == $size or die "$self->{orders}: $!";

    return $bytes;
}


sub _orders {
    my ($self, $order) = @_;

    return unpack 'L8', $self->_read(($order // 0) * $SIZE, 32);
}


sub fired {
    my ($self, $order) = @_;

    return ($self->_orders($order))[4];
}


# an order that is never due counts
sub count {
    my ($self, $calls) = @_;

    $self->arm($calls, $NEVER);
}


sub counted {
    my ($self) = @_;

    return $NEVER - ($self->_orders())[3];
}


sub advance {
    my ($self, $seconds) = @_;

    $self->{ahead} += $seconds;
    $self->_write($CLOCK, pack 'L', $self->{ahead});
}


1;
