package Hold;

# Stops or kills a worker inside the module: the orders for hold.c.
#
#   my $hold = Hold->new($t);
#   $hold->run($conf);                   # instead of $t->run($conf)
#   $hold->order('read', 'stop');        # before the next pread
#   $hold->order('locked', 'kill');      # before the next unlock of a mutex
#   $hold->order('ngx_slab_init', 'kill');  # at a call of nginx under the lock
#   my $pid = $hold->stopped();          # waits for it; 0 when none stops
#   $hold->taken();                      # waits until the order was followed
#   $hold->taken_now();                  # whether it was

use strict;
use warnings;

my $SOURCE = 't/preload/hold.c';


sub new {
    my ($class, $t) = @_;

    my $library = $t->run_dir() . '/hold.so';
    my ($code, $output) = $t->capture('gcc', '-std=gnu11', '-O1', '-Wall',
        '-Wextra', '-Werror', '-shared', '-fPIC', '-o', $library, $SOURCE,
        '-ldl');
    die "$SOURCE: $output" if $code;

    return bless { t => $t, library => $library,
                   order => $t->run_dir() . '/hold.order' }, $class;
}


sub run {
    my ($self, $conf) = @_;

    local $ENV{LD_PRELOAD} = join ':', $self->{library},
        $ENV{LD_PRELOAD} // ();
    local $ENV{ZMAP_HOLD} = $self->{order};
    local $ENV{ASAN_OPTIONS} = join ':', $ENV{ASAN_OPTIONS} // (),
        'verify_asan_link_order=0';

    return $self->{t}->run("env ZMAP_HOLD;\n$conf");
}


sub order {
    my ($self, $where, $what) = @_;

    my $text = ({ read => 'r', locked => 'l' }->{$where} // 't')
        . { stop => 'S', kill => 'K' }->{$what};
    $text .= $where if $text eq 'tK';
    my $new = "$self->{order}.new";

    open(my $fh, '>', $new) or die "$new: $!";
    print $fh $text;
    close($fh) or die "$new: $!";
    rename $new, $self->{order} or die "rename $new: $!";
}


sub taken {
    my ($self) = @_;

    return $self->{t}->poll(sub { $self->taken_now() });
}


sub taken_now {
    my ($self) = @_;

    return !-e $self->{order};
}


sub stopped {
    my ($self) = @_;

    return $self->{t}->poll(sub {
        my ($pid) = grep { _state($_) eq 'T' } $self->{t}->worker_pids();
        return $pid;
    });
}


sub _state {
    my ($pid) = @_;

    open(my $fh, '<', "/proc/$pid/stat") or return '';
    my ($state) = (<$fh> // '') =~ /\) (\S) /;

    return $state // '';
}


1;
