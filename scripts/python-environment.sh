# What the scripts that build and test the Python package share: virtual environments with tools, with
# pinned packages and with the wheel. To be sourced in the repository's root.

# Where tools of build_tools are: in the checkout, since a Debian's own Python takes no packages.
build_tools=$PWD/target/python/tools/bin

# build_tools NAME...: packages of PyPI that builds need, the versions that were tried; installed
# once, so that a second run needs no network.
build_tools() {
    local name missing=()
    for name in "$@"; do
        case "$name" in
        maturin) name='maturin>=1.9.4,<2' ;;
        cargo-zigbuild) name='cargo-zigbuild>=0.20,<1' ;;
        ziglang) name='ziglang>=0.13,<1' ;;
        twine) name='twine>=6' ;;
        esac
        [ -f "$build_tools/.has-${name%%>*}" ] || missing+=("$name")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    echo "installing into ${build_tools%/bin}: ${missing[*]}" >&2
    [ -x "$build_tools/pip" ] || python3 -m venv "${build_tools%/bin}"
    "$build_tools/pip" install --quiet --disable-pip-version-check "${missing[@]}" >&2
    for name in "${missing[@]}"; do touch "$build_tools/.has-${name%%>*}"; done
}

# install_packages REQUIREMENTS ENVIRONMENT: packages as they are pinned; installed again only
# when the pins have changed, so that a second run needs no network.
install_packages() {
    local requirements=$1 environment=$2 stamp
    stamp=$environment/$(basename "$requirements" .txt)
    [ -f "$stamp" ] && [ -z "$(find tests/python-*.txt -newer "$stamp")" ] && return
    echo "installing into $environment: $(grep -v -e '^#' -e '^-' "$requirements" | tr '\n' ' ')"
    grep -q '^torch' "$requirements" &&
        echo "(about 5 GB with what PyTorch brings; this takes minutes)"
    [ -x "$environment/bin/python" ] || python3 -m venv "$environment"
    "$environment/bin/pip" install --disable-pip-version-check --progress-bar on \
        --requirement "$requirements"
    touch "$stamp"
}

# install_wheel WHEEL PYTHON: the wheel, where it is not the one that is there.
install_wheel() {
    local wheel=$1 python=$2 is sums
    sums=$(dirname "$(dirname "$python")")/bothends-wheel
    is=$(sha256sum <"$wheel")
    [ "$is" != "$(cat "$sums" 2>/dev/null)" ] || return 0
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --force-reinstall "$wheel"
    echo "$is" >"$sums"
}
