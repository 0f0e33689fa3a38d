# SPDX-License-Identifier: MIT
"""git: commits, clones, packs with delta compression, and fsck of everything."""
import os

from support import ROOT, OverrideCase, ScenarioError, digest, program

CONFIG = """[user]
    name = Someone
    email = someone@example.org
[init]
    defaultBranch = main
[safe]
    directory = *
[protocol "file"]
    allow = always
[pack]
    threads = 4
[gc]
    auto = 0
"""
DATE = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000",
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}


class Git(OverrideCase):
    def git_of(self, side):
        git = program(self, "git")
        with open(os.path.join(side.home, ".gitconfig"), "w", encoding="utf-8") as file:
            file.write(CONFIG)

        def call(*words, cwd=None, **options):
            return side.run([git, *words], cwd=cwd, env=DATE, timeout=400, **options).text()
        return call

    def pack_clone_check(self, git, source, directory):
        """Clones through the transport, repacks hard, checks; what the repository then holds."""
        git("clone", "-q", "--no-local", source, directory)
        git("gc", "-q", "--aggressive", "--prune=now", cwd=directory)
        fsck = git("fsck", "--full", "--strict", "--no-progress", cwd=directory)
        objects = git("cat-file", "--batch-all-objects", "--batch-check", cwd=directory)
        verified = git("verify-pack", *self.packs(directory))
        return {"fsck": fsck, "objects": objects, "verified": verified,
                "head": git("rev-parse", "HEAD", cwd=directory),
                "log": git("log", "--stat", "-M", "-20", cwd=directory),
                "history": digest(git("log", "-p", "--no-color", "-100", cwd=directory))}

    @staticmethod
    def packs(directory):
        folder = os.path.join(directory, ".git", "objects", "pack")
        return sorted(os.path.join(folder, name) for name in os.listdir(folder)
                      if name.endswith(".idx"))

    def test_a_history_of_many_files(self):
        def scenario(side):
            git = self.git_of(side)
            git("init", "-q", "origin")
            origin = side.path("origin")
            for commit in range(12):
                for i in range(200):
                    if i % 12 <= commit:
                        lines = [f"line {k} of file {i}, touched in {commit if k % 9 == 0 else 0}"
                                 for k in range(60 + i)]
                        side.write(f"origin/d{i % 10}/file{i}.txt", "\n".join(lines))
                side.write("origin/big.bin", bytes((k * commit + k // 251) % 256
                                                   for k in range(200_000)))
                git("add", "-A", cwd=origin)
                git("commit", "-q", "-m", f"change {commit}", cwd=origin)
            git("checkout", "-q", "-b", "side", "HEAD~5", cwd=origin)
            side.write("origin/side.txt", "other\n")
            git("add", "-A", cwd=origin)
            git("commit", "-q", "-m", "side", cwd=origin)
            git("checkout", "-q", "main", cwd=origin)
            git("merge", "-q", "--no-edit", "side", cwd=origin)
            git("rebase", "-q", "side", cwd=origin)
            blame = git("blame", "-C", "d3/file3.txt", cwd=origin)
            archive = git("archive", "--format=tar", "-o", side.path("a.tar"), "HEAD", cwd=origin)
            with open(side.path("a.tar"), "rb") as file:
                archive += digest(file.read())
            return blame, archive, git("grep", "-c", "touched in 11", cwd=origin), \
                self.pack_clone_check(git, origin, side.path("clone"))

        *_, clone = self.both(scenario)
        self.assertEqual(clone["fsck"], "")
        self.assertGreater(clone["objects"].count("\n"), 500)
        self.assert_active("git", least=20)

    def test_this_repository(self):
        if not os.path.exists(os.path.join(ROOT, ".git")):
            self.skipTest(f"{ROOT} is not a git repository (an unpacked archive)")
        try:
            self.git_of(self.sides[0])("rev-parse", "--verify", "HEAD", cwd=ROOT)
        except ScenarioError:
            self.skipTest(f"{ROOT} has no commit yet")

        # Somebody may commit meanwhile: both sides clone one snapshot.
        snapshot = os.path.join(self.top, "snapshot.git")
        self.git_of(self.sides[0])("clone", "-q", "--mirror", "--no-local", ROOT, snapshot)

        def scenario(side):
            git = self.git_of(side)
            return self.pack_clone_check(git, snapshot, side.path("clone"))

        self.assertEqual(self.both(scenario)["fsck"], "")
        self.assert_active("git", least=5)
