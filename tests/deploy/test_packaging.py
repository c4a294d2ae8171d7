"""The unit and the container file: as far as a machine without their daemons can try them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "packaging" / "archipel-node@.service"
CONTAINER = (ROOT / "packaging" / "Containerfile").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
KNOWN = {"FROM", "COPY", "RUN", "USER", "WORKDIR", "VOLUME", "STOPSIGNAL", "ENTRYPOINT", "CMD"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_takes_the_unit(tmp_path):
    """With a program that is there in place of the installed one, systemd finds nothing wrong with it."""
    program = tmp_path / "archipel-node"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "archipel-node@buoy-2.service"
    text = UNIT.read_text(encoding="utf-8").replace("/opt/archipel/bin/archipel-node", str(program))
    unit.write_text(text)
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=120)
    wrong = [line for line in found.stderr.splitlines() if "buoy-2" in line or str(tmp_path) in line]
    assert found.returncode == 0 and not wrong, found.stderr
    unit.write_text(text.replace("ProtectSystem=strict", "ProtectSystm=strict"))
    spoilt = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=120)
    assert "ProtectSystm" in spoilt.stderr  # it does look


def test_the_unit_starts_what_the_command_line_knows():
    """The options of the unit are those of `archipel-node`; what it may write to is what a node writes to."""
    from archipel.deploy.run_node import order_of

    line = re.search(r"^ExecStart=\S+ (.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)[1]
    order = order_of(line.replace("%i", "buoy-2").split())
    assert order["name"] == "buoy-2" and order["description"] == "federation.toml"
    assert re.search(r"^ReadWritePaths=/srv/archipel/state /srv/archipel/site$", UNIT.read_text(), re.MULTILINE)


def instructions():
    """The container file's instructions, lines that go on put together."""
    whole = re.sub(r"\\\n", " ", "\n".join(line for line in CONTAINER.splitlines() if not line.startswith("#")))
    return [tuple(line.split(None, 1)) for line in whole.splitlines() if line.strip()]


def test_the_container_file_installs_what_the_guide_does():
    """Known instructions, files that are there, the guide's packages, no port, and nobody's root."""
    found = instructions()
    assert {name for name, _ in found} <= KNOWN and found[0][0] == "FROM"
    for paths in (rest.split()[:-1] for name, rest in found if name == "COPY"):
        assert all((ROOT / path).exists() for path in paths)
    packages = re.search(r"pip install --no-compile (numpy [^\n]*)", GUIDE)[1].split()
    ran = " ".join(rest for name, rest in found if name == "RUN")
    assert f"pip install --no-compile --no-cache-dir {' '.join(packages)} " in ran
    assert [rest for name, rest in found if name == "USER"] == ["archipel"] and "useradd" in ran
    assert ("ENTRYPOINT", '["archipel-node"]') in found and "EXPOSE" not in CONTAINER
