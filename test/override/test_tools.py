# SPDX-License-Identifier: MIT
"""Command-line programs: a solver, Rust programs, archivers with threads, OpenSSL."""
import hashlib
import os

from support import Config, HERE, OverrideCase, digest, program

DOCUMENTS = ("/usr/lib/python3.11", "/usr/share/perl", "/usr/include")


def pigeonhole(holes):
    """holes + 1 pigeons: unsatisfiable, and exponentially hard for resolution."""
    lines = [f"(declare-const h{i}_{j} Bool)" for i in range(holes + 1) for j in range(holes)]
    for i in range(holes + 1):
        lines.append("(assert (or " + " ".join(f"h{i}_{j}" for j in range(holes)) + "))")
    lines += [f"(assert (or (not h{i}_{j}) (not h{k}_{j})))" for j in range(holes)
              for i in range(holes + 1) for k in range(i)]
    return "\n".join(lines + ["(check-sat)\n"])


def sample(length):
    """Bytes that compress a little: hashes with repeats."""
    parts, size, i = [], 0, 0
    while size < length:
        part = hashlib.sha256(str(i % 4096).encode()).digest() * (1 + i % 3)
        part += str(i).encode() * (i % 5)
        parts.append(part)
        size += len(part)
        i += 1
    return b"".join(parts)[:length]


class Tools(OverrideCase):
    def test_z3_solves(self):
        z3 = program(self, "z3")

        def scenario(side):
            side.write("holes.smt2", pigeonhole(9 if Config.full else 8))
            puzzle = os.path.join(HERE, "programs", "puzzle.smt2")
            return [side.run([z3, "-T:200", puzzle], timeout=240).text(),
                    side.run([z3, "-T:200", "holes.smt2"], timeout=240).text(),
                    side.run([z3, "-T:200", "parallel.enable=true", "parallel.threads.max=3",
                              "holes.smt2"], timeout=240).text()]

        puzzle, *holes = self.both(scenario)
        self.assertEqual([line for line in puzzle.split() if line in ("sat", "unsat")], ["sat"] * 5)
        self.assertEqual(holes, ["unsat\n"] * 2)
        self.assert_active("z3", least=3)

    def test_ripgrep_searches_with_threads(self):
        rg = program(self, "rg")
        places = [place for place in DOCUMENTS if os.path.isdir(place)]
        searches = (["-c", "-i", "(alloc|free)[a-z_]*\\("],
                    ["-o", "--no-filename", "\\b0x[0-9a-f]{6,}"],
                    ["-n", "-C", "2", "realloc"], ["-l", "-U", "return[^;]*\\n\\s*}", "-g", "*.h"],
                    ["--json", "-m", "2", "import (os|sys)$", "-tpy"])

        def scenario(side):
            results = []
            for words in searches:
                out = side.run([rg, "-j4", "--no-ignore", *words, *places]).text()
                lines = [line for line in out.splitlines() if '"elapsed' not in line]
                results.append((len(lines), digest("\n".join(sorted(lines)))))
            return results

        for count, _ in self.both(scenario):
            self.assertGreater(count, 20)
        self.assert_active("rg", least=len(searches))

    def test_fd_whose_malloc_is_its_own(self):
        """fd is linked with an allocator of its own; the two must live in one process."""
        fd = program(self, "fdfind", "fd")

        def scenario(side):
            out = side.run([fd, "-j4", "-u", "-e", "h", "-e", "py", ".", "/usr/include",
                            "/usr/lib"])
            return digest("\n".join(sorted(out.text().splitlines()))), len(out.out)

        self.both(scenario)
        self.assert_active(exempt=("fd",))

    def test_archives_round_trip_byte_for_byte(self):
        tar = program(self, "tar")
        packers = {name: [program(self, name), *words] for name, words in (
            ("gzip", ["-9", "-n"]), ("bzip2", ["-9"]), ("xz", ["-T2", "-2", "--block-size=1MiB"]),
            ("zstd", ["-q", "-T2", "-12"]))}
        data = sample(12_000_000 if Config.full else 3_000_000)

        def scenario(side):
            for i in range(40):
                side.write(f"in/d{i % 7}/f{i}", data[i * 20011:i * 20011 + len(data) // 40])
            side.run([tar, "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner",
                      "-cf", "a.tar", "in"])
            results = {}
            for name, words in packers.items():
                packed = side.run([*words, "-c", "a.tar"], timeout=200).out
                back = side.run([words[0], "-d", "-c"], input_bytes=packed).out
                results[name] = (len(packed), digest(packed), digest(back))
                os.makedirs(side.path(name))
                side.write(f"{name}.packed", packed)
                side.run([tar, f"--use-compress-program={words[0]}", "-xf", f"{name}.packed", "-C",
                          name])
                side.run(["/usr/bin/diff", "-r", "in", f"{name}/in"])
            with open(side.path("a.tar"), "rb") as file:
                results["tar"] = digest(file.read())
            return results

        results = self.both(scenario)
        for name in packers:
            self.assertEqual(results[name][2], results["tar"], name)
        self.assert_active("tar", "gzip", "bzip2", "xz", "zstd", "diff", least=2)

    def test_openssl_keys_certificates_and_ciphers(self):
        openssl = program(self, "openssl")
        data = sample(1_000_000)
        # Fixed keys: what is signed and encrypted with them is the same in every run.
        key = "302e020100300506032b657004220420" + digest("seed")

        def scenario(side):
            def call(*words, **options):
                return side.run([openssl, *words], **options).out
            side.write("data", data)
            side.write("key.der", bytes.fromhex(key))
            call("pkey", "-inform", "DER", "-in", "key.der", "-out", "key.pem")
            results = [call("dgst", f"-{name}", "data")
                       for name in ("sha256", "sha3-512", "blake2b512")]
            for name in ("aes-256-cbc", "aes-128-ctr", "chacha20", "camellia-192-cbc"):
                words = [name, "-K", digest(name)[:64 if "256" in name or "20" in name else
                                                  48 if "192" in name else 32], "-iv", "0" * 32]
                packed = call("enc", *[f"-{words[0]}", *words[1:]], input_bytes=data)
                back = call("enc", "-d", *[f"-{words[0]}", *words[1:]], input_bytes=packed)
                results.append((digest(packed), back == data))
            call("req", "-new", "-key", "key.pem", "-subj", "/CN=example.org/O=Test", "-out", "csr")
            results.append(call("req", "-in", "csr", "-text", "-verify"))
            call("pkeyutl", "-sign", "-rawin", "-inkey", "key.pem", "-in", "data", "-out", "signed")
            results.append(digest_file(side.path("signed")))
            call("req", "-x509", "-key", "key.pem", "-subj", "/CN=root", "-days", "3000", "-out",
                 "root.pem")
            results.append(call("verify", "-CAfile", "root.pem", "root.pem"))
            call("genrsa", "-out", "rsa.pem", "2048")
            results.append(call("rsa", "-in", "rsa.pem", "-check", "-noout"))
            call("ecparam", "-name", "secp384r1", "-genkey", "-out", "ec.pem")
            call("dgst", "-sha384", "-sign", "ec.pem", "-out", "ec.sig", "data")
            call("ec", "-in", "ec.pem", "-pubout", "-out", "ec.pub")
            results.append(call("dgst", "-sha384", "-verify", "ec.pub", "-signature", "ec.sig",
                                "data"))
            results.append(call("ciphers", "-v", "ALL"))
            return results

        results = self.both(scenario)
        self.assertIn(b"Verified OK\n", results)
        self.assert_active("openssl", least=20)


def digest_file(path):
    with open(path, "rb") as file:
        return digest(file.read())
