package Test::Zmap::Fixture;

# Files of a test, Zstandard frames built by hand, and content from a seed.
#
# Paths are relative to the document root (%%DIR%%).
#   $t->write($rel, $bytes);        # in place: same inode when it exists
#   $t->replace($rel, $bytes);      # by rename: a new inode
#   $t->read($rel);  $t->path($rel);  $t->unlink($rel);
#   $t->zst($rel, $bytes, %opt);    # writes $rel.zst with the zstd tool and
#                                   # returns its bytes: level => 3, check => 0
#                                   # or 1, size => 0 (no content size),
#                                   # args => ['--long=27'], mtime => TIME
#   $t->compress($bytes, %opt);     # the same, bytes only
#   $t->raw_zst($rel, $bytes);      # $rel.zst with exactly these bytes
#   $t->mtime($rel, $time);         # sets it
#   $t->settle($rel, ...);          # until their ctime is old enough to be kept
#
#   $t->frame(%opt): window => BYTES (must be representable; default 1 MiB) or
#     descriptor => BYTE, or single => 1; fcs => N (Frame_Content_Size as
#     written, true or not), fcs_bytes => 1|2|4|8; dict => ID, dict_bytes =>
#     1|2|4; checksum => 1 (right) or a number; reserved => 1; last => 0
#     (no block is marked last); blocks => [[raw => $bytes], [rle => $byte, $n],
#     [compressed => $bytes], [reserved => $n, $bytes]]
#   $t->skippable($bytes, $n);      # magic number 0x184D2A50 + n
#   $t->xxh64($bytes);
#   $t->seekable($frames, %opt);    # frames, each [$coded, $content], and
#     their seek table: checksums => 1 (entries of 12 bytes), and lies: coded
#     => {I => SIZE}, decoded => {I => SIZE} of entry I, entries => N (so many),
#     number => N and descriptor => BYTE of the footer, variant => N of the
#     skippable frame
#
#   $t->random($n, $seed);  $t->text($n, $seed);   # incompressible; like prose

use strict;
use warnings;

use Digest::SHA ();
use File::Basename ();
use File::Path ();
use Time::HiRes ();


sub path { return "$_[0]{dir}/$_[1]" }


sub write {
    my ($self, $rel, $bytes) = @_;

    my $path = $self->path($rel);
    File::Path::make_path(File::Basename::dirname($path));
    _spew($path, $bytes);

    return $path;
}


sub replace {
    my ($self, $rel, $bytes) = @_;

    my $new = $self->write("$rel.new-version", $bytes);
    rename $new, $self->path($rel) or die "rename $new: $!";
}


sub _spew {
    my ($path, $bytes) = @_;

    open(my $fh, '>:raw', $path) or die "$path: $!";
    print $fh $bytes;
    close($fh) or die "$path: $!";
}


sub read {
    my ($self, $rel) = @_;

    my $path = $self->path($rel);
    open(my $fh, '<:raw', $path) or die "$path: $!";
    local $/;

    return <$fh> // '';
}


sub unlink {
    my ($self, @rel) = @_;

    for my $path (map { $self->path($_) } @rel) {
        CORE::unlink($path) or die "unlink $path: $!";
    }
}


sub mtime {
    my ($self, $rel, $time) = @_;

    my $path = $self->path($rel);
    utime $time, $time, $path or die "utime $path: $!";
}


sub settle {
    my ($self, @rel) = @_;

    for my $path (map { $self->path($_) } @rel) {
        my $ctime = (Time::HiRes::stat($path))[10] // die "stat $path: $!";
        $self->poll(sub { Time::HiRes::time() > $ctime + 0.15 })
            or die "$path: ctime in the future\n";
    }
}


sub compress {
    my ($self, $bytes, %opt) = @_;

    my $level = $opt{level} // 3;
    my $in = "$self->{run}/zstd.in";
    my $out = "$self->{run}/zstd.out";
    my @args = ('-q', '-f', "-$level", @{$opt{args} || []});
    push @args, $opt{check} // 1 ? '--check' : '--no-check';
    push @args, '--ultra' if $level > 19;
    push @args, '--no-content-size' if defined $opt{size} && !$opt{size};

    _spew($in, $bytes);
    my ($code, $output) = $self->capture('zstd', @args, $in, '-o', $out);
    die "zstd: $output" if $code;

    return $self->_slurp('zstd.out');
}


sub zst {
    my ($self, $rel, $bytes, %opt) = @_;

    my $coded = $self->compress($bytes, %opt);
    $self->raw_zst($rel, $coded);
    $self->mtime("$rel.zst", $opt{mtime}) if defined $opt{mtime};

    return $coded;
}


sub raw_zst {
    my ($self, $rel, $bytes) = @_;

    return $self->write("$rel.zst", $bytes);
}


my %BLOCK = (raw => 0, rle => 1, compressed => 2, reserved => 3);


# RFC 8878, 3.1.1
sub frame {
    my ($self, %opt) = @_;

    my @blocks = @{$opt{blocks} || []};
    my $last = $opt{last} // 1;
    my $body = '';
    my $content = '';

    for my $i (0 .. $#blocks) {
        my ($size, $bytes) = _block(@{$blocks[$i]});
        my $type = $blocks[$i][0];
        my $head = ($i == $#blocks && $last ? 1 : 0) | $BLOCK{$type} << 1
            | $size << 3;

        $body .= substr(pack('V', $head), 0, 3) . $bytes;
        $content .= $type eq 'rle' ? $bytes x $size : $bytes;
    }

    my $frame = _frame_header(%opt) . $body;
    return $frame unless defined $opt{checksum};

    my $sum = $opt{checksum} == 1 ? $self->xxh64($content) : $opt{checksum};

    return $frame . pack('V', $sum & 0xffffffff);
}


# Block_Size and the bytes that follow the block header
sub _block {
    my ($type, @args) = @_;

    return ($args[1], $args[0]) if $type eq 'rle';
    return ($args[0], $args[1] // '') if $type eq 'reserved';

    return (length $args[0], $args[0]);
}


# RFC 8878, 3.1.1.1
sub _frame_header {
    my (%opt) = @_;

    my $fcs_bytes = $opt{fcs_bytes} // _fcs_bytes(%opt);
    my $dict_bytes = $opt{dict_bytes} // (defined $opt{dict} ? 4 : 0);
    my %code = (0 => 0, 1 => 0, 2 => 1, 4 => 2, 8 => 3);

    my $descriptor = $code{$fcs_bytes} << 6
        | ($opt{single} ? 0x20 : 0)
        | ($opt{reserved} ? 0x08 : 0)
        | (defined $opt{checksum} ? 0x04 : 0)
        | (0, 1, 2, 0, 3)[$dict_bytes];

    my $head = pack('VC', 0xfd2fb528, $descriptor);
    $head .= pack('C', $opt{descriptor} // _window($opt{window} // 1 << 20))
        unless $opt{single};
    $head .= substr pack('V', $opt{dict} // 0), 0, $dict_bytes;
    return $head unless $fcs_bytes;

    my $fcs = $fcs_bytes == 2 ? $opt{fcs} - 256 : $opt{fcs};

    return $head . substr pack('Q<', $fcs), 0, $fcs_bytes;
}


sub _fcs_bytes {
    my (%opt) = @_;

    my $fcs = $opt{fcs};
    if (!defined $fcs) {
        die "single => 1 needs fcs\n" if $opt{single};
        return 0;
    }

    return 1 if $opt{single} && $fcs < 256;
    return 2 if $fcs >= 256 && $fcs < 65792;
    return 4 if $fcs <= 0xffffffff;
    return 8;
}


# RFC 8878, 3.1.1.1.2
sub _window {
    my ($size) = @_;

    for my $byte (0 .. 255) {
        my $base = 1 << (10 + ($byte >> 3));
        return $byte if $base + $base / 8 * ($byte & 7) == $size;
    }

    die "no descriptor says a window of $size\n";
}


sub skippable {
    my ($self, $bytes, $n) = @_;

    return pack('VV', 0x184d2a50 + ($n // 0), length $bytes) . $bytes;
}


# Zstandard seekable format 0.1.0
sub seekable {
    my ($self, $frames, %opt) = @_;

    my $entries = $opt{entries} // scalar @$frames;
    my $table = '';

    for my $i (0 .. $entries - 1) {
        my ($coded, $content) = @{$frames->[$i] // ['', '']};
        $table .= pack 'VV', $opt{coded}{$i} // length $coded,
            $opt{decoded}{$i} // length $content;
        $table .= pack 'V', $self->xxh64($content) & 0xffffffff
            if $opt{checksums};
    }

    $table .= pack 'VCV', $opt{number} // $entries,
        $opt{descriptor} // ($opt{checksums} ? 0x80 : 0), 0x8f92eab1;

    return join('', map { $_->[0] } @$frames)
        . $self->skippable($table, $opt{variant} // 14);
}


# xxHash, XXH64 with seed 0; "use integer" makes sums and products wrap
sub xxh64 {
    my ($self, $data) = @_;

    use integer;

    my ($p1, $p2, $p3, $p4, $p5) = unpack 'q5', pack 'Q5',
        11400714785074694791, 14029467366897019727, 1609587929392839161,
        9650029242287828579, 2870177450012600261;
    my $shr = sub { return ($_[0] >> $_[1]) & ((1 << (64 - $_[1])) - 1) };
    my $rol = sub { return ($_[0] << $_[1]) | $shr->($_[0], 64 - $_[1]) };
    my $round = sub { return $rol->($_[0] + $_[1] * $p2, 31) * $p1 };

    my $size = length $data;
    my $pos = 0;
    my $h = $p5;

    if ($size >= 32) {
        my @v = ($p1 + $p2, $p2, 0, 0 - $p1);
        for (; $pos + 32 <= $size; $pos += 32) {
            my @lane = unpack 'q<4', substr $data, $pos, 32;
            $v[$_] = $round->($v[$_], $lane[$_]) for 0 .. 3;
        }
        $h = $rol->($v[0], 1) + $rol->($v[1], 7) + $rol->($v[2], 12)
             + $rol->($v[3], 18);
        $h = ($h ^ $round->(0, $_)) * $p1 + $p4 for @v;
    }

    $h += $size;

    for (; $pos + 8 <= $size; $pos += 8) {
        $h ^= $round->(0, unpack 'q<', substr $data, $pos, 8);
        $h = $rol->($h, 27) * $p1 + $p4;
    }
    for (; $pos + 4 <= $size; $pos += 4) {
        $h ^= unpack('L<', substr $data, $pos, 4) * $p1;
        $h = $rol->($h, 23) * $p2 + $p3;
    }
    for (; $pos < $size; $pos++) {
        $h ^= ord(substr $data, $pos, 1) * $p5;
        $h = $rol->($h, 11) * $p1;
    }

    $h = ($h ^ $shr->($h, 33)) * $p2;
    $h = ($h ^ $shr->($h, 29)) * $p3;
    $h ^= $shr->($h, 32);

    return unpack 'Q', pack 'q', $h;
}


sub random {
    my ($self, $size, $seed) = @_;

    my $blocks = int(($size + 63) / 64);

    return substr join('', map { Digest::SHA::sha512("$seed:$_") }
                           1 .. $blocks), 0, $size;
}


my @SYLLABLES = qw(ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi xo
                   yu za ble cri dro flu);


sub text {
    my ($self, $size, $seed) = @_;

    my $state = $seed * 2654435761 % 4294967296;
    my $next = sub {
        $state = ($state * 1664525 + 1013904223) % 4294967296;
        return $state >> 8;
    };
    my @words = map { join '', map { $SYLLABLES[$next->() % 25] }
                      0 .. $next->() % 3 } 1 .. 2000;

    my @out;
    for (my $length = 0; $length < $size;) {
        my $word = $words[$next->() % (1 + $next->() % 2000)];
        $word .= $next->() % 12 ? ' ' : ".\n";
        push @out, $word;
        $length += length $word;
    }

    return substr join('', @out), 0, $size;
}


1;
