import io
import json
import os
import pickle
import unittest
import warnings

import numpy
import testing
import torch
from rubato import checkpoint, env, plain


class Note(checkpoint.State):
    def __init__(self, name, text=""):
        super().__init__(name)
        self.text = text

    def save(self, fileobj):
        fileobj.write(self.text.encode())

    def load(self, fileobj):
        self.text = fileobj.read().decode()


class Checkpoint(testing.LibraryTest):
    def folders(self):
        return sorted(os.listdir(env.checkpoint_path()))

    def reload(self, name):
        testing.forget()
        note = Note(name)
        return note.text if checkpoint.load_state(note) else None

    def test_a_later_save_of_the_same_life_replaces_the_earlier(self):
        note = Note("note")
        for text in ("one", "two", "three", "four", "five"):
            note.text = text
            checkpoint.save_all_states()
        self.assertEqual(len(self.folders()), checkpoint.KEEP)
        self.assertEqual(self.reload("note"), "five")

    def test_a_damaged_checkpoint_is_passed_over_with_a_warning(self):
        note = Note("note", "good")
        checkpoint.save_all_states()
        note.text = "bad"
        checkpoint.save_all_states()
        with open(os.path.join(checkpoint.newest(), "note"), "wb") as file:
            file.write(b"evi")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(self.reload("note"), "good")
        self.assertIn("was changed after it was saved", str(caught[0].message))

    def test_what_a_crash_left_behind_is_not_taken_and_goes(self):
        note = Note("note", "whole")
        checkpoint.save_all_states()
        draft = os.path.join(env.checkpoint_path(), ".draft-1")
        os.makedirs(draft)
        with open(os.path.join(draft, "note"), "wb") as file:
            file.write(b"half")
        self.assertEqual(self.reload("note"), "whole")
        checkpoint.save_all_states()
        self.assertFalse(os.path.exists(draft))
        del note

    def test_a_folder_of_adaptdl_without_a_manifest_is_read(self):
        folder = os.path.join(env.checkpoint_path(), "checkpoint-4")
        os.makedirs(folder)
        with open(os.path.join(folder, "note"), "wb") as file:
            file.write(b"old")
        self.assertEqual(self.reload("note"), "old")

    def test_a_save_in_the_background_is_there_after_wait(self):
        note = Note("note", "kept")
        checkpoint.save_all_states(background=True)
        note.text = "changed after the bytes were taken"
        folder = checkpoint.wait()
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["files"]["note"]["size"], 4)
        self.assertEqual(self.reload("note"), "kept")

    def test_a_full_disk_is_said_and_leaves_the_old_one(self):
        note = Note("note", "old")
        checkpoint.save_all_states()
        note.text = "new"
        real = checkpoint._write_durably

        def full(path, data):
            raise OSError(28, "No space left on device", path)

        checkpoint._write_durably = full
        self.addCleanup(setattr, checkpoint, "_write_durably", real)
        with self.assertRaisesRegex(OSError, "No space"):
            checkpoint.save_all_states()
        self.assertEqual(self.reload("note"), "old")

    def test_names_that_are_no_file_names_are_refused(self):
        for name in ("", "a/b", ".hidden", "manifest.json", 7):
            with self.assertRaises(ValueError):
                Note(name)
        Note("once")
        with self.assertRaisesRegex(ValueError, "exists already"):
            Note("once")

    def test_only_rank_0_writes(self):
        self.be(1, 2)
        Note("note", "x")
        checkpoint.save_all_states()
        self.assertFalse(os.path.exists(env.checkpoint_path()))


class PlainValues(unittest.TestCase):
    def there_and_back(self, value):
        buffer = io.BytesIO()
        plain.dump(value, buffer)
        return plain.load(io.BytesIO(buffer.getvalue()))

    def test_come_back_as_they_were(self):
        value = {"a": [1, 2.5, None, True, "text"], 3: (1, (2,)), "set": {1, 2}, "bytes": b"\0\xff", (1, 2): {}}
        self.assertEqual(self.there_and_back(value), value)
        array = self.there_and_back({"array": numpy.arange(6.0).reshape(2, 3)})["array"]
        self.assertEqual(array.tolist(), [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
        tensor = self.there_and_back([torch.arange(3), torch.tensor(2.0)])
        self.assertEqual([one.tolist() for one in tensor], [[0, 1, 2], 2.0])

    def test_what_could_run_is_neither_written_nor_read(self):
        with self.assertRaisesRegex(TypeError, r"state\['x'\]"):
            plain.dump({"x": print}, io.BytesIO())
        for data in (b"", b"1234", (2).to_bytes(8, "big") + b"{}" + pickle.dumps(print),
                     (13).to_bytes(8, "big") + b'{"$tensor": 0}'):
            with self.assertRaises(ValueError):
                plain.load(io.BytesIO(data))


if __name__ == "__main__":
    unittest.main()
