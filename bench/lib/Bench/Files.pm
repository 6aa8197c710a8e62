package Bench::Files;

# The tree that is measured.
#
#   my $files = Bench::Files->new($dir);
#   my $name = $files->coded(4096);      # 4k.css.zst and 4k.css.gz
#   my $name = $files->body(16384);      # b16k.css.zst, and p/b16k.css
#   my $name = $files->sample('level 3', 64 << 20, frame => 0,
#                             options => ['-3']);
#   $files->settle();
#
# A coded file has that size to the byte (random bytes in raw blocks) and two
# names: gzip_static does not look at what it sends, and two files of one size
# differ in what the page cache made of them.  A body is text, coded by zstd;
# its plain file lies in a tree of its own.

use strict;
use warnings;

use Digest::MD5 ();
use File::Find ();
use Time::HiRes ();

my @SAMPLE_ROOTS = qw(/usr/share /usr/lib);
my $SAMPLE_NAMES = qr/\.(?:mo|pm|py|js|txt|vim|css)$/;
my $SAMPLE_MAX = 1 << 20;

my $FRAME_BLOCK = 128 << 10;

# the module keeps nothing of a file younger than 0.1 s
my $AGE = 0.3;


sub new {
    my ($class, $dir) = @_;

    for ("$dir/coded", "$dir/plain") {
        mkdir $_ or die "mkdir $_: $!\n";
    }

    return bless { dir => $dir, made => {} }, $class;
}


sub coded_root { return "$_[0]{dir}/coded" }
sub plain_root { return "$_[0]{dir}/plain" }


sub size_name {
    my ($size) = @_;

    return ($size >> 20) . 'm' if $size % (1 << 20) == 0;
    return ($size >> 10) . 'k' if $size % (1 << 10) == 0;
    return $size;
}


sub coded {
    my ($self, $size) = @_;

    my $name = size_name($size) . '.css';
    return $name if $self->{made}{$name}++;

    my $root = $self->coded_root;
    _write("$root/$name.zst", _frame($size));
    link "$root/$name.zst", "$root/$name.gz"
        or die "link $root/$name.gz: $!\n";

    return $name;
}


sub body {
    my ($self, $size) = @_;

    my $name = 'b' . size_name($size) . '.css';
    return $name if $self->{made}{$name}++;

    my $plain = $self->plain_root . "/$name";
    _write($plain, text($size));
    system('zstd', '-q', '-9', '--check', $plain, '-o',
           $self->coded_root . "/$name.zst") == 0
        or die "zstd failed\n";

    return $name;
}


sub sample {
    my ($self, $name, $size, %opt) = @_;

    my $text = $self->plain_root . '/text';
    _write($text, _text_of_machine($size)) unless -e $text;

    $name =~ s/\W+/-/g;
    link $text, $self->plain_root . "/$name.txt"
        or die "link $name.txt: $!\n";
    _compress($text, $self->coded_root . "/$name.txt.zst", $size, %opt);

    return "$name.txt";
}


sub settle {
    my ($self) = @_;

    my $youngest = 0;
    for (glob("$self->{dir}/*/*")) {
        my $ctime = (Time::HiRes::stat($_))[10];
        $youngest = $ctime if $ctime > $youngest;
    }

    while (Time::HiRes::time() < $youngest + $AGE) {
        Time::HiRes::sleep(0.02);
    }
}


# RFC 8878, 3.1.1: a window of 2 MiB, Frame_Content_Size in four bytes
sub _frame {
    my ($size) = @_;

    my $room = $FRAME_BLOCK + 3;
    my $blocks = int(($size - 10 + $room - 1) / $room);
    my $left = $size - 10 - 3 * $blocks;
    my $frame = pack('VCCV', 0xfd2fb528, 0x80, 0x58, $left);

    while ($left) {
        my $n = $left < $FRAME_BLOCK ? $left : $FRAME_BLOCK;
        $left -= $n;
        my $header = pack('V', $n << 3 | ($left ? 0 : 1));
        $frame .= substr($header, 0, 3) . random($n);
    }

    die 'made ' . length($frame) . " bytes, not $size\n"
        unless length $frame == $size;

    return $frame;
}


sub random {
    my ($size) = @_;

    open(my $fh, '<:raw', '/dev/urandom') or die "/dev/urandom: $!\n";
    my $n = read($fh, my $data, $size);
    die "/dev/urandom: $!\n" unless ($n // -1) == $size;

    return $data;
}


sub _compress {
    my ($from, $to, $size, %opt) = @_;

    my $frame = $opt{frame} || $size;
    my @zstd = ('zstd', '-q', '-c', @{$opt{options} || []});
    open(my $in, '<:raw', $from) or die "$from: $!\n";

    while (my $n = read($in, my $bytes, $frame)) {
        _write("$to.part", $bytes);
        my $input = $opt{unsized} ? "cat '$to.part' | @zstd"
                                  : "@zstd '$to.part'";
        system("$input >>'$to'") == 0 or die "zstd failed\n";
    }

    unlink "$to.part";
}


# in an order that mixes them, and is the same each time
sub _text_of_machine {
    my ($size) = @_;

    my @paths;
    File::Find::find({ no_chdir => 1, wanted => sub {
        push @paths, $_ if /$SAMPLE_NAMES/ && -f && !-l && -s _ <= $SAMPLE_MAX;
    } }, @SAMPLE_ROOTS);

    my %order = map { $_ => Digest::MD5::md5($_) } @paths;
    my $text = '';

    for my $path (sort { $order{$a} cmp $order{$b} } @paths) {
        open(my $fh, '<:raw', $path) or next;
        local $/;
        $text .= <$fh> // '';
        return substr($text, 0, $size) if length $text >= $size;
    }

    die 'only ' . length($text) . " bytes of text in @SAMPLE_ROOTS\n";
}


sub text {
    my ($size) = @_;

    srand(1);
    my @words = map {
        join '', map { chr(97 + int rand 26) } 1 .. 2 + int rand 9
    } 1 .. 2000;

    my $text = '';
    while (length $text < $size) {
        $text .= join(' ', map { $words[rand() ** 2 * @words] } 1 .. 12)
                 . "\n";
    }

    return substr($text, 0, $size);
}


sub _write {
    my ($path, $data) = @_;

    open(my $fh, '>:raw', $path) or die "$path: $!\n";
    print {$fh} $data or die "$path: $!\n";
    close($fh) or die "$path: $!\n";
}


1;
