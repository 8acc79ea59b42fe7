# What the scripts that test the Python package share: a virtual environment with pinned packages
# and with the wheel. To be sourced in the repository's root.

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
