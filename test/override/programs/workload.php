<?php
// SPDX-License-Identifier: MIT
// php: its own heap above ours (and off, in a child), extensions opened with RTLD_DEEPBIND whose
// libraries get blocks from the program and from libc, and free them.
$scale = (int) ($argv[1] ?? 1);

function database(int $rows): string {
    $base = new PDO('sqlite::memory:');
    $base->exec('create table t (a integer primary key, b text)');
    $put = $base->prepare('insert into t values (?, ?)');
    for ($i = 0; $i < $rows; $i++) {
        $put->execute([$i, str_repeat(chr(97 + $i % 26), $i % 300)]);
    }
    return $base->query('select count(*), sum(length(b)) from t where a % 3 = 0')->fetch()[1];
}

function document(int $nodes): string {
    $document = new DOMDocument();
    $root = $document->appendChild($document->createElement('root'));
    for ($i = 0; $i < $nodes; $i++) {
        $root->appendChild($document->createElement("e$i", str_repeat('v', $i % 90)));
    }
    $again = simplexml_load_string($document->saveXML());
    return count($again) . '-' . md5($again->asXML());
}

function text(int $count): string {
    $words = [];
    for ($i = 0; $i < $count; $i++) {
        $words["k$i"] = str_repeat('ö', $i % 70);
    }
    $packed = gzcompress(json_encode($words));
    $again = json_decode(gzuncompress($packed), true);
    return mb_strlen(implode(',', $again)) . '-' . preg_match_all('/ö{5,9}/u', implode(',', $again));
}

echo database(5000 * $scale), "\n", document(3000 * $scale), "\n", text(20000 * $scale), "\n";
if (getenv('USE_ZEND_ALLOC') !== '0') {
    putenv('USE_ZEND_ALLOC=0'); // every value in a block of malloc's
    passthru(escapeshellarg(PHP_BINARY) . ' ' . escapeshellarg(__FILE__) . " $scale", $status);
    if ($status !== 0) {
        throw new Exception("the child ended with $status");
    }
}
echo "done\n";
