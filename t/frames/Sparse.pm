package Sparse;

# Coded files of more than 4 GiB that take little room on the disk: what is not
# there is zeros.
#
#   my $file = Sparse->new($t, $rel);     # writes $rel.zst
#   $file->add($bytes);  $file->hole($n);
#   $file->close;                         # gives it its length
#   $file->size;  $file->bytes($pos, $n);  $file->checker($pos)  # as of Body
#
# A body of raw blocks, as Body has them:
#   my $body = Sparse::Blocks->new($t, $rel, $frames);
#   $body->file                           # the Sparse
#
# Frames of 64 MiB.  A block of 128 KiB is its number and zeros, but all is
# random around 2^31 and 2^32.

use strict;
use warnings;


sub new {
    my ($class, $t, $rel) = @_;

    my $path = $t->write("$rel.zst", '');
    open(my $fh, '+<:raw', $path) or die "$path: $!";

    return bless { fh => $fh, path => $path, size => 0 }, $class;
}


sub add {
    my ($self, $bytes) = @_;

    sysseek($self->{fh}, $self->{size}, 0) // die "$self->{path}: $!";
    syswrite($self->{fh}, $bytes) == length $bytes
        or die "$self->{path}: $!";
    $self->{size} += length $bytes;
}


sub hole {
    my ($self, $n) = @_;

    $self->{size} += $n;
}


sub close {
    my ($self) = @_;

    truncate($self->{fh}, $self->{size}) or die "$self->{path}: $!";
    CORE::close($self->{fh});
    open($self->{fh}, '<:raw', $self->{path}) or die "$self->{path}: $!";
}


sub size { return $_[0]{size} }


sub bytes {
    my ($self, $pos, $n) = @_;

    sysseek($self->{fh}, $pos, 0) // die "$self->{path}: $!";
    my $got = sysread($self->{fh}, my $bytes, $n) // die "$self->{path}: $!";
    die "$self->{path}: $got bytes at $pos, not $n\n" if $got != $n;

    return $bytes;
}


sub checker {
    my ($self, $pos) = @_;

    return sub {
        my ($bytes) = @_;
        my $from = $pos;
        $pos += length $bytes;
        return $pos <= $self->size
               && $bytes eq $self->bytes($from, length $bytes);
    };
}


package Sparse::Blocks;

our @ISA = qw(Sparse);

my $BLOCK = 128 << 10;
my $FRAME = 512;            # blocks


sub new {
    my ($class, $t, $rel, $frames) = @_;

    my $file = Sparse->new($t, $rel);
    my $self = bless { t => $t, file => $file, blocks => $frames * $FRAME },
        $class;
    my $head = $t->frame(window => 1 << 20, fcs => $FRAME * $BLOCK);

    for my $n (0 .. $self->{blocks} - 1) {
        my $last = ($n + 1) % $FRAME == 0 ? 1 : 0;
        my $bytes = $self->_block($n);

        $file->add($head) if $n % $FRAME == 0;
        $file->add(substr(pack('V', $BLOCK << 3 | $last), 0, 3) . $bytes);
        $file->hole($BLOCK - length $bytes);
    }
    $file->close();

    return $self;
}


# the beginning of a block; the rest is zeros
sub _block {
    my ($self, $n) = @_;

    my $to_border = ($n * $BLOCK) % (1 << 31);
    $to_border = (1 << 31) - $to_border if $to_border > 1 << 30;
    my $random = $n && $to_border <= 2 * $BLOCK;

    return sprintf('%015x ', $n)
           . ($random ? $self->{t}->random($BLOCK - 16, $n) : '');
}


sub file { return $_[0]{file} }
sub size { return $_[0]{blocks} * $BLOCK }


sub bytes {
    my ($self, $pos, $n) = @_;

    my $first = int($pos / $BLOCK);
    my $last = int(($pos + $n - 1) / $BLOCK);
    my $blocks = join '', map {
        my $bytes = $self->_block($_);
        $bytes . "\0" x ($BLOCK - length $bytes);
    } $first .. $last;

    return substr $blocks, $pos - $first * $BLOCK, $n;
}


1;
