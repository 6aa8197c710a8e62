package Body;

# A body of any size whose bytes are known at any place, and files of it.
#
#   use lib 't/lib', 't/frames';
#   my $body = Body->new($t, $size);
#   $body->size
#   $body->bytes($pos, $n);             # those that lie there
#   $body->checker($pos);               # ->($bytes): whether they follow
#   $body->one($rel, %opt);             # $rel.zst of one frame
#   $body->many($rel, $frame, %opt);    # $rel.zst of frames of $frame bytes
#
# %opt: size => 0 (no Frame_Content_Size), table => 1 (a seek table), level =>
# 1.  All frames have checksums.
#
# Each unit of 4 KiB begins with its number, and goes on with a part of 128 KiB
# of random bytes that depends on the number: no place looks like another, and
# a coded file has a fiftieth of the size.

use strict;
use warnings;

use Fcntl ();

my $UNIT = 4096;
my $POOL = 128 << 10;
my $CHUNK = 1 << 20;

# of Linux, bytes that a pipe may hold
my $F_SETPIPE_SZ = 1031;


sub new {
    my ($class, $t, $size) = @_;

    return bless { t => $t, size => $size, pool => $t->random($POOL, 1) },
        $class;
}


sub size { return $_[0]{size} }


sub bytes {
    my ($self, $pos, $n) = @_;

    my $first = int($pos / $UNIT);
    my $last = int(($pos + $n - 1) / $UNIT);
    my $units = join '', map {
        sprintf('%015x ', $_)
        . substr $self->{pool}, 3967 * ($_ * 2654435761 >> 7 & 31), $UNIT - 16
    } $first .. $last;

    return substr $units, $pos - $first * $UNIT, $n;
}


sub checker {
    my ($self, $pos) = @_;

    return sub {
        my ($bytes) = @_;
        my $from = $pos;
        $pos += length $bytes;
        return $pos <= $self->{size}
               && $bytes eq $self->bytes($from, length $bytes);
    };
}


sub one {
    my ($self, $rel, %opt) = @_;

    my @size = $opt{size} // 1 ? ("--stream-size=$self->{size}") : ();

    $self->_make($rel, 'zstd', '-q', '-c', '--check',
                 '-' . ($opt{level} // 1), @size);
}


sub many {
    my ($self, $rel, $frame, %opt) = @_;

    my @options = ('checksums', ($opt{size} // 1 ? 'sizes' : ()),
                   ($opt{table} ? 'table' : ()));

    $self->_make($rel, $self->_pack(), $frame, $opt{level} // 1, @options);
}


sub _pack {
    my ($self) = @_;

    my $program = $self->{t}->run_dir() . '/pack';
    return $program if -e $program;

    my ($code, $output) = $self->{t}->capture('gcc', '-std=gnu11', '-O2',
        '-Wall', '-Wextra', '-Werror', '-o', $program, 't/frames/pack.c',
        '-lzstd');
    die "pack.c: $output" if $code;

    return $program;
}


sub _make {
    my ($self, $rel, @command) = @_;

    my $path = $self->{t}->write("$rel.zst", '');
    my $pid = open(my $pipe, '|-') // die "fork: $!";

    if ($pid == 0) {
        open(STDOUT, '>', $path) or die "$path: $!";
        exec { $command[0] } @command or die "$command[0]: $!";
    }

    binmode $pipe;
    fcntl($pipe, $F_SETPIPE_SZ, $CHUNK);

    for (my $pos = 0; $pos < $self->{size}; $pos += $CHUNK) {
        my $left = $self->{size} - $pos;
        print {$pipe} $self->bytes($pos, $left < $CHUNK ? $left : $CHUNK)
            or die "$command[0]: $!";
    }

    local $?;
    close($pipe) or die "$command[0]: exit code " . ($? >> 8) . "\n";
}


1;
