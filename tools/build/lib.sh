# What the scripts of the build share.  Sourced by bash; sets root, the
# top folder of the checkout.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
nginx_src=/usr/share/nginx/src
ZMAP_NGINX=${ZMAP_NGINX:-/usr/sbin/nginx}


say() {
    printf '== %s\n' "$*"
}


die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}


# Runs a command as root
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "needs root or sudo for: $*"
    fi
}


# Reads Debian's configure flags into NGX_CONF_FLAGS
nginx_flags() {
    [ -r $nginx_src/conf_flags ] || die "$nginx_src/conf_flags is missing"
    . $nginx_src/conf_flags
}
