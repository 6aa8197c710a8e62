package Test::Zmap;

# Runs a real nginx with the module for one test file, and judges its logs.
#
#   use lib 't/lib';
#   use Test::More;
#   use Test::Zmap;
#
#   my $t = Test::Zmap->new()->plan(2);      # before the first check
#
#   my $text = $t->text(100_000, 1);         # seed 1
#   $t->zst('a.txt', $text);                 # only DIR/a.txt.zst exists
#
#   $t->run($t->conf('location / { zstd_mmap on; }'));
#
#   my $r = $t->get('/a.txt', 'Accept-Encoding: zstd');
#   is($r->status, 200, 'status');
#   ok($r->complete && $r->body eq $t->read('a.txt.zst'), 'frames');
#
# plan(N) adds four checks that run at the end: no unexpected line of level
# alert or emerg, no sanitizer or valgrind report, no worker killed by a
# signal, nginx gone in time after QUIT.  There is no skip.
#
# Life:      new, plan, run, test_config, reload, stop, start_failed, conf
# Processes: master_pid, worker_pids, kill
# Log:       log, log_lines, log_count, log_like, wait_log, expect_alert
# Files:     Test::Zmap::Fixture.  Client: Test::Zmap::Client.
#
# Environment: TEST_NGINX_BINARY (/usr/sbin/nginx), TEST_NGINX_MODULE
# (build/ngx_http_zstd_mmap_module.so; empty: linked in), TEST_SCALE (factor of
# all timeouts), TEST_VALGRIND=1 (one process, under valgrind), TEST_LEAVE=1
# (keeps the directory and prints its name).

use strict;
use warnings;

use Cwd ();
use Fcntl qw(:flock);
use File::Path ();
use File::Temp ();
use IO::Socket::INET ();
use POSIX ();
use Test::More ();
use Time::HiRes ();

use Test::Zmap::Client ();
use Test::Zmap::Fixture ();

our @ISA = qw(Test::Zmap::Client::Factory Test::Zmap::Fixture);

our $SANITIZER = qr/ERROR:\ (?:Address|Leak)Sanitizer
                   |Sanitizer:\ CHECK\ failed
                   |SUMMARY:\ \w+Sanitizer
                   |AddressSanitizer:\ ?DEADLYSIGNAL
                   |:\ runtime\ error:/x;

my @live;


# new(%opt): workers => 1, timeout => 10 (seconds, before TEST_SCALE),
# valgrind => 0, valgrind_args => [], log_level => 'debug'
sub new {
    my ($class, %opt) = @_;

    my $scale = $ENV{TEST_SCALE} || 1;
    my $valgrind = $opt{valgrind} // $ENV{TEST_VALGRIND};

    my $self = bless {
        binary        => $ENV{TEST_NGINX_BINARY} || '/usr/sbin/nginx',
        module        => _module_path(),
        workers       => $opt{workers} || 1,
        scale         => $scale,
        timeout       => ($opt{timeout} || 10) * $scale,
        valgrind      => $valgrind,
        valgrind_args => $opt{valgrind_args} || [],
        log_level     => $opt{log_level} || 'debug',
        expected      => [],
        ports         => [],
        late          => 0,
        owner         => $$,
    }, $class;

    $self->{tmp} = File::Temp::tempdir('zmap-test-XXXXXX', TMPDIR => 1);
    $self->{dir} = "$self->{tmp}/html";
    $self->{run} = "$self->{tmp}/run";
    mkdir $_ or die "mkdir $_: $!" for $self->{dir}, $self->{run};
    chmod 0755, $self->{tmp}, $self->{dir}, $self->{run};

    push @live, $self;

    return $self;
}


sub _module_path {
    return $ENV{TEST_NGINX_MODULE} if defined $ENV{TEST_NGINX_MODULE};
    return Cwd::abs_path('build/ngx_http_zstd_mmap_module.so')
           // 'build/ngx_http_zstd_mmap_module.so';
}


sub plan {
    my ($self, $count) = @_;

    die "plan(N) needs a number\n" unless defined $count && $count =~ /^\d+$/;

    Test::More::plan(tests => $count + 4);
    $self->{planned} = 1;

    return $self;
}


# the allocator of a sanitizer maps and trims on its own account
sub sanitized { return defined $ENV{TEST_NGINX_BINARY} && $ENV{ASAN_OPTIONS} }


sub dir { return $_[0]{dir} }          # the document root
sub run_dir { return $_[0]{run} }      # configuration, logs, certificate
sub timeout { return $_[0]{timeout} }


# port(n): a port on 127.0.0.1 that no other running test has; n from 1
sub port {
    my ($self, $n) = @_;

    $n //= 1;
    push @{$self->{ports}}, _reserve_port() while @{$self->{ports}} < $n;

    return $self->{ports}[$n - 1]{port};
}


# The lock keeps parallel test files apart; the kernel says who else listens.
sub _reserve_port {
    my $dir = File::Spec->tmpdir() . "/zmap-ports.$>";
    mkdir $dir, 0700;

    for (1 .. 500) {
        my $port = 20000 + int(rand(12000));
        open(my $lock, '>', "$dir/$port") or next;
        next unless flock($lock, LOCK_EX | LOCK_NB);
        my $probe = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
            LocalPort => $port, Proto => 'tcp', Listen => 1, ReuseAddr => 1)
            or next;
        close($probe);
        return { port => $port, lock => $lock };
    }

    die "no free port\n";
}


# conf($inner, %opt): a whole configuration around what a server block needs;
# http => text for the http block
sub conf {
    my ($self, $inner, %opt) = @_;

    my $http = $opt{http} // '';

    return <<"EOF";
%%GLOBALS%%

events {
}

http {
    %%HTTP%%
    root %%DIR%%;
    $http

    server {
        listen 127.0.0.1:%%PORT%%;
        server_name localhost;
        $inner
    }
}
EOF
}


# Fills %%GLOBALS%%, %%HTTP%%, %%DIR%%, %%RUN%%, %%PORT%%, %%PORT2%% ...
sub _expand {
    my ($self, $conf) = @_;

    my %text = (
        GLOBALS => $self->_globals(),
        HTTP    => $self->_http(),
        DIR     => $self->{dir},
        RUN     => $self->{run},
    );

    $conf =~ s/%%(GLOBALS|HTTP|DIR|RUN)%%/$text{$1}/g;
    $conf =~ s/%%PORT(\d*)%%/$self->port($1 || 1)/ge;

    return $conf;
}


sub _globals {
    my ($self) = @_;

    my @lines = (
        'daemon off;',
        "pid $self->{run}/nginx.pid;",
        "error_log $self->{run}/error.log $self->{log_level};",
        "worker_processes $self->{workers};",
    );
    # nginx clears its environment, and a new binary inherits what is left
    push @lines, map { "env $_;" }
        grep { defined $ENV{$_} } map { "${_}_OPTIONS" } qw(ASAN LSAN UBSAN);
    push @lines, 'user root;' if $> == 0;
    push @lines, 'master_process off;' if $self->{valgrind};
    push @lines, "load_module $self->{module};" if length $self->{module};

    return join "\n", @lines;
}


sub _http {
    my ($self) = @_;

    my $temp = join '', map { "    ${_}_temp_path $self->{run}/$_;\n" }
        qw(client_body proxy fastcgi uwsgi scgi);

    return <<'EOF' . $temp;
access_log off;
    default_type application/octet-stream;
    types {
        text/html html;
        text/css css;
        text/plain txt;
        application/javascript js;
        application/json json;
        image/svg+xml svg;
    }
EOF
}


sub _write_conf {
    my ($self, $conf) = @_;

    my $path = "$self->{run}/nginx.conf";
    open(my $fh, '>', $path) or die "$path: $!";
    print $fh $self->_expand($conf);
    close($fh) or die "$path: $!";

    return $path;
}


sub _command {
    my ($self) = @_;

    return ($self->{binary}, '-p', "$self->{run}/", '-c',
            "$self->{run}/nginx.conf", '-e', "$self->{run}/error.log");
}


# nginx frees nothing when it ends in main(), after -t or a failed start.
sub _sanitizer_environment {
    my ($self, $ends_in_main) = @_;

    for my $name (qw(ASAN_OPTIONS UBSAN_OPTIONS LSAN_OPTIONS)) {
        my $given = $ENV{$name} // '';
        $given =~ s/(?:^|:)log_path=[^:]*//;
        $ENV{$name} = join ':', grep { length } $given,
            "log_path=$self->{run}/sanitizer";
    }

    $ENV{ASAN_OPTIONS} .= ':detect_leaks=0' if $ends_in_main;
}


# (exit code, output) of "nginx -t"; the error log of the test stays untouched
sub test_config {
    my ($self, $conf) = @_;

    my $text = $self->_expand($conf);
    $text =~ s{^error_log .*$}{error_log $self->{run}/test.log;}m;
    $text =~ s{^pid .*$}{pid $self->{run}/test.pid;}m;

    my $path = "$self->{run}/test.conf";
    open(my $fh, '>', $path) or die "$path: $!";
    print $fh $text;
    close($fh) or die "$path: $!";

    return $self->capture($self->{binary}, '-t', '-p', "$self->{run}/",
        '-c', $path, '-e', "$self->{run}/test.log");
}


# (exit code, stdout and stderr) of a command; 124 when it took too long
sub capture {
    my ($self, @command) = @_;

    my $pid = open(my $out, '-|') // die "fork: $!";
    if (!$pid) {
        open(STDERR, '>&', \*STDOUT);
        open(STDIN, '<', '/dev/null');
        $self->_sanitizer_environment(1);
        no warnings 'exec';
        exec { $command[0] } @command;
        print "$command[0]: $!\n";
        POSIX::_exit(127);
    }

    my $output = '';
    my $late = !eval {
        local $SIG{ALRM} = sub { die "late\n" };
        Time::HiRes::alarm(3 * $self->{timeout});
        local $/;
        $output = <$out> // '';
        Time::HiRes::alarm(0);
        1;
    };
    CORE::kill('KILL', $pid) if $late;

    local ($!, $?);
    close($out);
    my $code = $? & 127 ? 128 + ($? & 127) : $? >> 8;

    return ($late ? 124 : $code, $output);
}


# Starts nginx with that configuration and returns once it serves; dies with
# the logs when it does not start.
sub run {
    my ($self, $conf) = @_;

    return $self if $self->_start($conf);

    die "nginx did not start\n" . $self->log() . $self->_slurp('stderr');
}


# Like run(), for a start that must fail: true when nginx ended by itself
sub start_failed {
    my ($self, $conf) = @_;

    return !$self->_start($conf, 1);
}


sub _start {
    my ($self, $conf, $ends_in_main) = @_;

    die "plan() first\n" unless $self->{planned};
    $self->_write_conf($conf);
    $self->_spawn($ends_in_main);

    return $self->_wait_ready();
}


sub _spawn {
    my ($self, $ends_in_main) = @_;

    die "nginx runs already\n" if $self->{pid};

    my @command = $self->_command();
    unshift @command, 'valgrind', '--error-exitcode=99',
        '--trace-children=yes', "--log-file=$self->{run}/valgrind.%p",
        @{$self->{valgrind_args}} if $self->{valgrind};

    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        open(STDIN, '<', '/dev/null');
        open(STDOUT, '>>', "$self->{run}/stderr");
        open(STDERR, '>&', \*STDOUT);
        $self->_sanitizer_environment($ends_in_main);
        no warnings 'exec';
        exec { $command[0] } @command;
        print STDERR "$command[0]: $!\n";
        POSIX::_exit(127);
    }

    $self->{pid} = $pid;
}


sub _wait_ready {
    my ($self) = @_;

    my $ready = $self->poll(sub {
        return 1 if $self->_reap();
        return -s "$self->{run}/nginx.pid"
               && $self->worker_pids() >= ($self->{valgrind}
                                           ? 1 : $self->{workers});
    });

    return $ready && $self->{pid};
}


# true when the master has ended
sub _reap {
    my ($self) = @_;

    return 1 unless $self->{pid};
    local $?;
    return 0 if waitpid($self->{pid}, POSIX::WNOHANG()) == 0;
    $self->{exit} = $?;
    delete $self->{pid};

    return 1;
}


# Calls the function until it returns true; false after the timeout.
sub poll {
    my ($self, $fn, $timeout) = @_;

    my $deadline = Time::HiRes::time() + ($timeout // $self->{timeout});
    while (1) {
        my $value = $fn->();
        return $value if $value;
        return 0 if Time::HiRes::time() > $deadline;
        Time::HiRes::sleep(0.01);
    }
}


# Signals HUP and returns true once new workers run and the old ones are gone
# (old => 'stay': without waiting for the old ones).
# The configuration may be replaced: reload(conf => $text).
sub reload {
    my ($self, %opt) = @_;

    $self->_write_conf($opt{conf}) if defined $opt{conf};
    my %old = map { $_ => 1 } $self->worker_pids();
    my $stay = ($opt{old} // '') eq 'stay';

    CORE::kill('HUP', $self->{pid});

    return $self->poll(sub {
        my @now = $self->worker_pids();
        my @new = grep { !$old{$_} } @now;
        return @new >= $self->{workers} && ($stay || @new == @now);
    });
}


# QUIT, and KILL when that takes too long (then the last check fails)
sub stop {
    my ($self) = @_;

    return $self unless $self->{pid};
    CORE::kill('QUIT', $self->{pid});
    return $self if $self->poll(sub { $self->_reap() },
                                3 * $self->{timeout});

    $self->{late} = 1;
    CORE::kill('KILL', $self->worker_pids(), $self->{pid});
    $self->poll(sub { $self->_reap() });

    return $self;
}


sub master_pid { return $_[0]{pid} }


# Pids of the worker processes (children of the master), as a list
sub worker_pids {
    my ($self) = @_;

    my @pids;
    if ($self->{pid}) {
        @pids = $self->{valgrind} ? $self->{pid}
            : grep { _cmdline($_) =~ /worker process/ }
              _children($self->{pid});
    }

    return @pids;
}


sub _children {
    my ($parent) = @_;

    my @pids;
    opendir(my $proc, '/proc') or die "/proc: $!";
    for my $pid (grep { /^\d+$/ } readdir $proc) {
        open(my $fh, '<', "/proc/$pid/stat") or next;
        my $stat = <$fh> // next;
        my ($state, $ppid) = $stat =~ /\) (\S) (\d+) / or next;
        push @pids, $pid if $ppid == $parent && $state ne 'Z';
    }

    return @pids;
}


sub _cmdline {
    my ($pid) = @_;

    open(my $fh, '<', "/proc/$pid/cmdline") or return '';
    local $/;

    return <$fh> // '';
}


# kill('KILL', $pid ...): processes of this test's nginx only
sub kill {
    my ($self, $signal, @pids) = @_;

    my %ours = map { $_ => 1 } $self->{pid} // (), $self->worker_pids();
    for my $pid (@pids) {
        die "process $pid is not of this test\n" unless $ours{$pid};
    }

    return CORE::kill($signal, @pids);
}


sub _slurp {
    my ($self, $name) = @_;

    open(my $fh, '<:raw', "$self->{run}/$name") or return '';
    local $/;

    return <$fh> // '';
}


sub log { return $_[0]->_slurp('error.log') }


sub log_lines {
    my ($self, $re) = @_;

    return grep { $_ =~ $re } split /^/, $self->log();
}


sub log_count {
    my ($self, $re) = @_;

    return scalar(my @lines = $self->log_lines($re));
}


# a check of its own: some line matches, now or within the timeout
sub log_like {
    my ($self, $re, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    Test::More::ok($self->wait_log($re), $name // "log has $re");
}


# true once count lines match; false after the timeout
sub wait_log {
    my ($self, $re, $count) = @_;

    return $self->poll(sub { $self->log_count($re) >= ($count // 1) });
}


# Lines of level alert or above that match are no failure.
sub expect_alert {
    my ($self, $re) = @_;

    push @{$self->{expected}}, $re;

    return $self;
}


sub _unexpected {
    my ($self, $re) = @_;

    my @lines = $self->log_lines($re);
    for my $expected (@{$self->{expected}}) {
        @lines = grep { $_ !~ $expected } @lines;
    }

    return @lines;
}


sub _reports {
    my ($self) = @_;

    my @names = map { s{.*/}{}r } glob("$self->{run}/sanitizer.*");
    my @found;
    for my $name (@names, qw(stderr error.log test.log)) {
        push @found, "$name: $1\n"
            if $self->_slurp($name) =~ /^(.*$SANITIZER.*(?:\n.*){0,40})/m;
    }

    return (@found, $self->_valgrind_reports());
}


sub _valgrind_reports {
    my ($self) = @_;

    return () unless $self->{valgrind};

    my @names = map { s{.*/}{}r } glob("$self->{run}/valgrind.*");
    return ("no log of valgrind\n") unless @names;

    return grep { !/ERROR SUMMARY: 0 errors/ } map { $self->_slurp($_) }
        @names;
}


sub _final_checks {
    my ($self) = @_;

    my @checks = (
        ['no unexpected alert in the log',
         $self->_unexpected(qr/\[(?:alert|emerg)\]/)],
        ['no sanitizer report', $self->_reports()],
        ['no worker killed by a signal',
         $self->_unexpected(qr/exited on signal/)],
        ['nginx gone in time',
         $self->{late} ? ("nginx did not end after QUIT\n") : ()],
    );

    for my $check (@checks) {
        my ($name, @faults) = @$check;
        Test::More->builder->ok(!@faults, $name);
        Test::More::diag(@faults > 10 ? @faults[0 .. 9] : @faults) if @faults;
    }
}


sub _finish {
    my ($self) = @_;

    $self->stop();
    $self->_final_checks() if $self->{planned};

    if ($ENV{TEST_LEAVE}) {
        Test::More::diag("left in $self->{tmp}");
        return;
    }

    File::Path::remove_tree($self->{tmp});
}


$SIG{$_} = sub { exit 1 } for qw(INT TERM HUP);
$SIG{PIPE} = 'IGNORE';


END {
    my $status = $?;
    for my $self (@live) {
        $self->_finish() if $self->{owner} == $$;
    }
    $? = $status;
}


1;
