// Verifies bundles and proofs of countersign's log with the packages of Go's checksum database
// (golang.org/x/mod/sumdb), which share no code with countersign.
//
//	verify_log VKEY (BUNDLE | PROOF)...
//
// It prints a line for each bundle and proof that is valid, and ends with 1 at the first one that is not.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const tileHeight = 8

func main() {
	if len(os.Args) < 3 {
		fail("usage: verify_log VKEY (BUNDLE | PROOF)...")
	}
	verifier, err := note.NewVerifier(os.Args[1])
	if err != nil {
		fail("the key: %v", err)
	}
	for _, path := range os.Args[2:] {
		info, err := os.Stat(path)
		if err != nil {
			fail("%v", err)
		}
		verify := verifyProof
		if info.IsDir() {
			verify = verifyBundle
		}
		size, err := verify(path, verifier)
		if err != nil {
			fail("%s: %v", path, err)
		}
		fmt.Printf("valid %d %s\n", size, path)
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

// openCheckpoint verifies the signatures of a checkpoint.
func openCheckpoint(signed []byte, verifier note.Verifier) (tlog.Tree, error) {
	opened, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return tlog.Tree{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != verifier.Name() || lines[3] != "" {
		return tlog.Tree{}, fmt.Errorf("not a checkpoint of %s: %q", verifier.Name(), opened.Text)
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return tlog.Tree{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	return tlog.Tree{N: size, Hash: root}, err
}

// tiles reads the tiles of a bundle.
type tiles struct{ dir string }

func (t tiles) Height() int { return tileHeight }

func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var read [][]byte
	for _, tile := range wanted {
		// Their paths name the height of a tile as well.
		path := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
		bytes, err := os.ReadFile(filepath.Join(t.dir, path))
		if err != nil {
			return nil, err
		}
		read = append(read, bytes)
	}
	return read, nil
}

func (t tiles) SaveTiles([]tlog.Tile, [][]byte) {}

// verifyBundle verifies the checkpoint, every entry, every hash of every tile, and that the log goes on from each of
// its earlier sizes.
func verifyBundle(dir string, verifier note.Verifier) (int64, error) {
	signed, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		return 0, err
	}
	tree, err := openCheckpoint(signed, verifier)
	if err != nil {
		return 0, err
	}
	reader := tlog.TileHashReader(tree, tiles{dir})
	// The packages of Go have no root of an empty tree.
	root := tlog.Hash(sha256.Sum256(nil))
	if tree.N > 0 {
		if root, err = tlog.TreeHash(tree.N, reader); err != nil {
			return 0, fmt.Errorf("the root: %w", err)
		}
	}
	if root != tree.Hash {
		return 0, fmt.Errorf("the tiles have the root %v", root)
	}
	for index := int64(0); index < tree.N; {
		// Their data tiles have another format: here each entry is behind its length.
		tile := tlog.Tile{H: tileHeight, L: 0, N: index >> tileHeight, W: 1 << tileHeight}
		if left := tree.N - index; left < int64(tile.W) {
			tile.W = int(left)
		}
		path := strings.Replace(tile.Path(), "tile/8/0/", "tile/entries/", 1)
		entries, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return 0, err
		}
		for n := 0; n < tile.W; n, index = n+1, index+1 {
			if len(entries) < 2 || len(entries) < 2+int(binary.BigEndian.Uint16(entries)) {
				return 0, fmt.Errorf("%s ends before entry %d", path, index)
			}
			length := int(binary.BigEndian.Uint16(entries))
			if err := verifyEntry(entries[2:2+length], index, tree, reader); err != nil {
				return 0, fmt.Errorf("entry %d: %w", index, err)
			}
			entries = entries[2+length:]
		}
		if len(entries) > 0 {
			return 0, fmt.Errorf("%s has more entries than its name says", path)
		}
	}
	return tree.N, nil
}

func verifyEntry(entry []byte, index int64, tree tlog.Tree, reader tlog.HashReader) error {
	proof, err := tlog.ProveRecord(tree.N, index, reader)
	if err != nil {
		return err
	}
	if err := tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash(entry)); err != nil {
		return err
	}
	older := index + 1
	olderRoot, err := tlog.TreeHash(older, reader)
	if err != nil {
		return err
	}
	consistency, err := tlog.ProveTree(tree.N, older, reader)
	if err != nil {
		return err
	}
	return tlog.CheckTree(consistency, tree.N, tree.Hash, older, olderRoot)
}

// verifyProof verifies a proof of one entry (c2sp.org/tlog-proof).
func verifyProof(path string, verifier note.Verifier) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	head, signed, found := bytes.Cut(text, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !found || len(lines) < 3 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return 0, fmt.Errorf("not a proof")
	}
	tree, err := openCheckpoint(signed, verifier)
	if err != nil {
		return 0, err
	}
	entry, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra "))
	if err != nil {
		return 0, err
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	if err != nil {
		return 0, err
	}
	var proof tlog.RecordProof
	for _, line := range lines[3:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return 0, err
		}
		proof = append(proof, hash)
	}
	return tree.N, tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash(entry))
}
