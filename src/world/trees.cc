#include "world/trees.h"

#include <vector>

#include "core/turns.h"

namespace rubato {

Task<void> remove_in_turns(World& world, std::string path) {
  Files& files = world.files;
  // Folders in the order of their discovery: backwards, each one is empty when it is its turn.
  std::vector<std::string> folders;
  if (files.exists(path)) folders.push_back(path);
  Turns turns(world.clock.loop());
  for (size_t i = 0; i < folders.size(); ++i) {
    const std::string folder = folders[i];
    std::vector<Files::Entry> entries;
    try {
      entries = files.list(folder);
    } catch (const Error&) {
      continue;  // no folder, or none that can be read: removed as a whole below
    }
    for (const Files::Entry& entry : entries) {
      const std::string inside = folder + "/" + entry.name;
      if (entry.kind == Files::Entry::Kind::kFolder) {
        folders.push_back(inside);
        continue;
      }
      files.remove_tree(inside);
      co_await turns.step();
    }
  }
  for (size_t i = folders.size(); i-- > 0;) {
    files.remove_tree(folders[i]);
    co_await turns.step();
  }
}

}  // namespace rubato
