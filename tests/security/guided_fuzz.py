"""Formats under a fuzzer that keeps what reaches new code: ``guided_fuzz [SECONDS]``, for each format.

Each format is fuzzed in a process of its own by atheris, which changes inputs as ``mutations`` does or by itself, and
sees which branches of ``sources`` they take. Inputs that reached something new are kept in ``.tools/fuzz/FORMAT``, from
which the next run goes on. One that raises another error than a refusal, ends the process, takes more than
:data:`INPUT_BYTES` or :data:`INPUT_SECONDS` is a finding: its file is named, and ``guided_fuzz FORMAT FILE`` decodes it
again. More arguments after FORMAT are libFuzzer's. atheris keeps some kB of memory for each input, so a process is
followed by another after :data:`SLICE_SECONDS`.
"""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path
from random import Random

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / ".tools" / "fuzz"
SECONDS = 60
SLICE_SECONDS = 60
INPUT_BYTES = 500 << 20
INPUT_SECONDS = 30
PROCESS_MB = 4000
LONGEST = 1 << 16  # bytes of an input
UNITS = "number_of_executed_units"


def fuzz(form: str, arguments: list[str]) -> None:
    """Fuzz one format with arguments of libFuzzer's; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["sources"]):
        from braid.sources.core.errors import ServiceError
        from tests.security.fuzz_formats import FORMATS, max_memory, read_to_the_end
        from tests.security.mutations import mutated
    make_seeds, decode_all = FORMATS[form]
    seeds = make_seeds()

    def decode(body: bytes) -> None:
        before = max_memory()
        try:
            for decoded in decode_all(body):
                read_to_the_end(decoded)
        except ServiceError as refusal:
            refusal.detail.encode()
        assert max_memory() - before < INPUT_BYTES, "an input must not take all memory"

    def mutate(body: bytes, longest: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(body, longest))
        return mutated([body, body, body, random.choice(seeds)], random)[:longest]

    atheris.Setup([sys.argv[0], *arguments], decode, custom_mutator=mutate)
    atheris.Fuzz()


def run(form: str, seconds: int) -> Path | None:
    """Fuzz one format for so long in other processes; return the file of what was found, None for nothing."""
    from tests.security.fuzz_formats import FORMATS

    corpus, findings = FOLDER / form, FOLDER / "findings" / form
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for seed in FORMATS[form][0]():
        (corpus / f"seed-{zlib.crc32(seed):08x}").write_bytes(seed)
    before, inputs, failed = set(findings.iterdir()), 0, ""
    for begin in range(0, seconds, SLICE_SECONDS):
        limits = [f"-rss_limit_mb={PROCESS_MB}", f"-timeout={INPUT_SECONDS}", f"-max_len={LONGEST}"]
        limits += [f"-max_total_time={min(SLICE_SECONDS, seconds - begin)}", "-print_final_stats=1"]
        command = [sys.executable, "-m", "tests.security.guided_fuzz", form, *limits, f"-artifact_prefix={findings}/"]
        done = subprocess.run(
            [*command, str(corpus)], cwd=REPOSITORY, capture_output=True, text=True, errors="replace", check=False
        )
        inputs += sum(int(line.split()[-1]) for line in done.stderr.splitlines() if UNITS in line)
        if done.returncode:
            failed = done.stdout[-4000:] + done.stderr[-4000:]
            break
    print(f"{form}: {inputs} inputs, {len(list(corpus.iterdir()))} kept", flush=True)
    if not failed:
        return None
    print(failed)
    return min(set(findings.iterdir()) - before, default=findings)


def main() -> int:
    """Fuzz all formats one after the other; the exit status is 1 where something was found."""
    from tests.security.fuzz_formats import FORMATS

    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    findings = [path for form in FORMATS if (path := run(form, seconds)) is not None]
    for path in findings:
        print(f"FOUND {path}; to decode it again: python -m tests.security.guided_fuzz {path.parent.name} {path}")
    return 1 if findings else 0


if __name__ == "__main__":
    if len(sys.argv) > 2:
        fuzz(sys.argv[1], sys.argv[2:])
    sys.exit(main())
