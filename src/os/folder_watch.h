// FolderWatch by inotify.
#pragma once

#include "world/folder_watch.h"

namespace rubato::os {

std::unique_ptr<FolderWatch> watch_folder(const std::string& folder);

}  // namespace rubato::os
