// Quorum: may this side of a broken group go on?
//
// An agent whose kernel said that it is gone (connection closed or refused) is dead and counts for no one. An agent
// that is merely silent may be alive behind a cut cable, with a majority. So of the members that are not known to be
// dead, the side that goes on needs more than half; the host that is already in office needs only half, so that a
// group of two survives a cut, on exactly one side. Who died out of sight is another matter: Rendezvous::dead_count().
#pragma once

namespace rubato::elastic {

struct Quorum {
  int base = 0;            // members of the last generation that ran (of all, before the first)
  int dead = 0;            // of them, known to be dead
  bool incumbent = false;  // this side has the host

  bool holds(int alive) const { return incumbent ? 2 * alive >= base - dead : 2 * alive > base - dead; }
};

}  // namespace rubato::elastic
