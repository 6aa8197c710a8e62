package Bench::Server;

# One nginx with one worker, and a server block on a port of its own for each
# way to send a reply.
#
#   my $s = Bench::Server->new(nginx => ..., module => ..., dir => ...,
#                              coded => $root, plain => $root);
#                              # main => text, http => text: more of nginx.conf
#                              # blocks => {name => [root, text, with TLS]}:
#                              # in place of those in _blocks()
#   $s->start();
#   $s->url('staged-auto', 'a.css');    # server blocks: see _blocks()
#   $s->status();                       # zstd_mmap_status as data
#   $s->cpu();                          # ns of the worker and its threads,
#                                       # when they rest
#   my @cpus = $s->pin();               # those that there are, the worker and
#                                       # its threads on the first; none: only
#                                       # one there
#   $s->syscalls(sub { ... });          # {name => calls} of the worker
#   $s->stop();
#   $s->stop_clean();                   # dies after a fault

use strict;
use warnings;

use IO::Socket::INET ();
use JSON::PP ();
use POSIX ();
use Time::HiRes ();

use Bench::Machine ();

our $ZONE    = 'bench';
our $ZONE_MB = 64;
our $BUFFERS_MB = 32;

my $STAGE = "zstd_mmap_stage $ZONE max=32m min_uses=1;";
my $HTTP = "zstd_mmap_zone $ZONE:${ZONE_MB}m hugepages=auto; "
           . "zstd_mmap_buffers ${BUFFERS_MB}m hugepages=auto;";
my $DEADLINE = 20;


sub new {
    my ($class, %opt) = @_;

    return bless { owner => $$, %opt }, $class;
}


# name => [root, text, with TLS]
sub _blocks {
    my ($self) = @_;

    my ($coded, $plain) = @$self{qw(coded plain)};
    my %blocks = (
        gzip        => [$coded, 'gzip_static on;'],
        identity    => [$plain, ''],
        decoded     => [$coded, "zstd_mmap on; $STAGE"],
        return      => [$plain, 'location / { return 200 "' . 'x' x 160
                                . '"; }'],
        'tls-gzip'  => [$coded, 'gzip_static on;', 1],
        'tls-staged-auto' => [$coded, "zstd_mmap on; $STAGE", 1],
    );

    for my $send (qw(auto memory sendfile)) {
        my $text = "zstd_mmap on; zstd_mmap_send $send;";
        $blocks{"staged-$send"} = [$coded, "$text $STAGE"];
        $blocks{"unstaged-$send"} = [$coded, $text];
    }

    return \%blocks;
}


sub url {
    my ($self, $name, $path) = @_;

    my $port = $self->{ports}{$name} // die "no server $name\n";
    my $scheme = $self->{blocks}{$name}[2] ? 'https' : 'http';

    return "$scheme://127.0.0.1:$port/$path";
}


sub port { return $_[0]{ports}{$_[1]} }
sub worker { return $_[0]{worker} }


sub start {
    my ($self) = @_;

    $self->{blocks} //= $self->_blocks();
    $self->{blocks}{status} = [$self->{plain}, 'location = /status '
                               . '{ zstd_mmap_status json; }'];
    $self->_certificate();

    # a port can be lost between the probe and nginx
    for (1 .. 3) {
        $self->{ports} = _free_ports(sort keys %{$self->{blocks}});
        $self->_write_conf();
        $self->_spawn();
        return $self->_find_worker() if $self->_answers();
        $self->stop();
    }

    die "nginx does not start:\n" . $self->log();
}


sub _free_ports {
    my (@names) = @_;

    my %socket = map {
        $_ => IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1,
                                    Proto => 'tcp')
              // die "no free port: $@\n"
    } @names;

    return { map { $_ => $socket{$_}->sockport } @names };
}


sub _certificate {
    my ($self) = @_;

    my $dir = $self->{dir};
    return if -e "$dir/cert.pem";
    system("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
           . "-nodes -days 2 -subj /CN=localhost -keyout '$dir/key.pem' "
           . "-out '$dir/cert.pem' 2>'$dir/openssl.log'") == 0
        or die "openssl failed, see $dir/openssl.log\n";
}


sub _write_conf {
    my ($self) = @_;

    my $path = "$self->{dir}/nginx.conf";
    open(my $fh, '>', $path) or die "$path: $!\n";
    print {$fh} $self->_conf();
    close($fh) or die "$path: $!\n";
}


sub _conf {
    my ($self) = @_;

    my $dir = $self->{dir};
    my $user = $> == 0 ? 'user www-data;' : '';
    my $load = $self->{module} eq '' ? '' : "load_module $self->{module};";
    my $main = $self->{main} // '';
    my $http = $self->{http} // $HTTP;

    return <<"EOF" . join('', map { $self->_server($_) }
daemon off;
$user
worker_processes 1;
pid $dir/nginx.pid;
error_log $dir/error.log warn;
$load
$main

events {
}

http {
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    client_body_temp_path $dir/client_body;
    proxy_temp_path $dir/proxy;
    fastcgi_temp_path $dir/fastcgi;
    uwsgi_temp_path $dir/uwsgi;
    scgi_temp_path $dir/scgi;

    sendfile on;
    tcp_nopush on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    open_file_cache max=1000;
    open_file_cache_valid 60s;

    ssl_certificate $dir/cert.pem;
    ssl_certificate_key $dir/key.pem;

    $http
EOF
        sort keys %{$self->{blocks}}) . "}\n";
}


sub _server {
    my ($self, $name) = @_;

    my ($root, $text, $tls) = @{$self->{blocks}{$name}};
    my $listen = "127.0.0.1:$self->{ports}{$name}" . ($tls ? ' ssl' : '');

    return <<"EOF";

    server {
        # $name
        listen $listen;
        root $root;
        $text
    }
EOF
}


sub _spawn {
    my ($self) = @_;

    my $dir = $self->{dir};
    my $pid = fork() // die "fork: $!\n";

    if ($pid == 0) {
        POSIX::setpgid(0, 0);
        open(STDOUT, '>>', "$dir/error.log");
        open(STDERR, '>&', \*STDOUT);
        no warnings 'exec';
        exec { $self->{nginx} } $self->{nginx}, '-p', "$dir/",
            '-c', "$dir/nginx.conf", '-e', "$dir/error.log";
        print STDERR "$self->{nginx}: $!\n";
        POSIX::_exit(127);
    }

    $self->{master} = $pid;
}


sub _answers {
    my ($self) = @_;

    my $end = Time::HiRes::time() + $DEADLINE;

    while (Time::HiRes::time() < $end) {
        return 0 if waitpid($self->{master}, POSIX::WNOHANG()) != 0;
        return 1 if IO::Socket::INET->new(PeerAddr => '127.0.0.1',
            PeerPort => $self->{ports}{status}, Proto => 'tcp');
        Time::HiRes::sleep(0.02);
    }

    return 0;
}


sub _find_worker {
    my ($self) = @_;

    my @workers = @{$self->status()->{workers}};
    die scalar(@workers) . " workers\n" unless @workers == 1;
    $self->{worker} = $workers[0]{pid};
}


sub status {
    my ($self) = @_;

    my $url = $self->url('status', 'status');
    my $text = `curl -sf --max-time 20 '$url'`;
    die "no status: curl's exit code " . ($? >> 8) . "\n" if $?;

    return JSON::PP->new->utf8->decode($text);
}


# The run time of a task that is on a CPU is brought up to date at the next
# tick only, hence the two equal readings.
sub cpu {
    my ($self) = @_;

    my $end = Time::HiRes::time() + $DEADLINE;
    my $last = -1;

    while (Time::HiRes::time() < $end) {
        my $now = _run_time($self->{worker});
        return $now if $now == $last;
        $last = $now;
        Time::HiRes::sleep(0.02);
    }

    die "the worker does not come to rest\n";
}


sub _run_time {
    my ($pid) = @_;

    my $sum = 0;

    for my $path (glob "/proc/$pid/task/*/schedstat") {
        open(my $fh, '<', $path) or die "$path: $!\n";
        my ($ns) = split ' ', <$fh> // '';
        $sum += $ns // 0;
    }

    return $sum || die "process $pid has no run time\n";
}


sub pin {
    my ($self) = @_;

    my @cpus = Bench::Machine::cpus();

    return if @cpus < 2;

    system("taskset -acp $cpus[0] $self->{worker} >'$self->{dir}/taskset.log'")
        == 0 or die "taskset failed\n";

    return @cpus;
}


# Calls of the worker while $work runs, by name; it must be idle before.
# Undefined where strace is missing or may not attach.
sub syscalls {
    my ($self, $work) = @_;

    my $file = "$self->{dir}/strace";
    my $pid = fork() // die "fork: $!\n";

    if ($pid == 0) {
        open(STDERR, '>', "$file.log");
        no warnings 'exec';
        exec 'strace', '-o', $file, '-p', $self->{worker};
        POSIX::_exit(127);
    }

    return unless $self->_traced($pid);

    my $done = eval { $work->(); 1 };
    my $error = $@;
    kill 'INT', $pid;
    waitpid($pid, 0);
    die $error unless $done;

    my %calls;
    /^(\w+)\(/ and $calls{$1}++ for split /\n/, _slurp($file);

    return \%calls;
}


sub _traced {
    my ($self, $pid) = @_;

    my $end = Time::HiRes::time() + $DEADLINE;

    while (Time::HiRes::time() < $end) {
        return 1 if _slurp("/proc/$self->{worker}/status")
                    =~ /^TracerPid:\s+$pid$/m;
        return 0 if waitpid($pid, POSIX::WNOHANG()) != 0;
        Time::HiRes::sleep(0.02);
    }

    kill 'INT', $pid;
    waitpid($pid, 0);

    return 0;
}


sub log { return _slurp("$_[0]{dir}/error.log") }


sub _slurp {
    my ($path) = @_;

    open(my $fh, '<', $path) or return '';
    local $/;

    return <$fh> // '';
}


sub stop {
    my ($self) = @_;

    my $master = delete $self->{master} or return 1;
    my $end = Time::HiRes::time() + $DEADLINE;

    kill 'QUIT', $master;

    while (Time::HiRes::time() < $end) {
        return 1 if waitpid($master, POSIX::WNOHANG()) != 0;
        Time::HiRes::sleep(0.02);
    }

    kill 'KILL', -$master;
    waitpid($master, 0);

    return 0;
}


# dies when nginx had a fault, or did not end in time
sub stop_clean {
    my ($self) = @_;

    $self->stop() or die "nginx did not end in time\n";

    my @faults = grep { /\[(?:crit|alert|emerg)\]|Sanitizer|runtime error/ }
        split /\n/, $self->log();
    die join("\n", 'nginx says:', @faults) . "\n" if @faults;
}


sub DESTROY {
    my ($self) = @_;

    local ($?, $!, $@);
    $self->stop() if $self->{owner} == $$;
}


1;
