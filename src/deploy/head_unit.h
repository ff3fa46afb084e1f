// The head's supervisor as a service of the user's systemd, where there is one that lingers: it starts the supervisor
// after a reboot, and again when it is killed. Restarts of the head are the supervisor's affair here too.
#pragma once

#include <string>

namespace rubato::cli {

struct HeadUnit {
  std::string name;     // "rubato-head-lab-0123abcd.service"
  std::string program;  // the path of this binary
  std::string dir;      // the cluster's folder
};

// Two clusters of one name, in different folders, have different units.
HeadUnit head_unit(const std::string& program, const std::string& cluster, const std::string& dir);
std::string unit_text(const HeadUnit& unit);

// Shell scripts; the first reads the unit's text from standard input. They end with 0 when all was done.
// `ask`: lingering is asked for where it is off.
std::string start_unit_script(const HeadUnit& unit, bool ask);
std::string stop_unit_script(const HeadUnit& unit);    // its supervisor ends, and the head with it; the unit stays
std::string remove_unit_script(const HeadUnit& unit);  // what it has started runs on, and is not started again

}  // namespace rubato::cli
