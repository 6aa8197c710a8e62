package Bench::Run;

# What lies around a run: its folder, its tables, its end.
#
#   my $dir = Bench::Run::make_dir($parent);  # with html and run, removed at
#                                             # the end; undef: a temporary one
#   Bench::Run::at_end(sub { ... });          # before that, however it ends
#   Bench::Run::write_tables($text, $path);   # print, and to a file, if defined

use strict;
use warnings;

use File::Path ();
use File::Spec ();
use File::Temp ();

my $owner = $$;
my ($dir, @last);

$SIG{$_} = sub { exit 1 } for qw(INT TERM HUP);


sub make_dir {
    my ($parent) = @_;

    $dir = File::Temp::tempdir('zmap-bench-XXXXXX', CLEANUP => 0,
                               DIR => $parent // File::Spec->tmpdir());
    mkdir "$dir/$_" or die "mkdir $dir/$_: $!\n" for qw(html run);
    chmod 0755, $dir, "$dir/html";

    return $dir;
}


sub at_end { push @last, @_ }


sub write_tables {
    my ($text, $path) = @_;

    print $text;
    return unless defined $path;

    open(my $fh, '>:encoding(UTF-8)', $path) or die "$path: $!\n";
    print {$fh} $text;
    close($fh) or die "$path: $!\n";
}


END {
    if ($$ == $owner) {
        local $?;
        $_->() for @last;
        File::Path::remove_tree($dir) if defined $dir;
    }
}


1;
