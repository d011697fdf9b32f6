// Support for a launcher that is the first process of a container or PID namespace.
#pragma once

namespace rueda::agent {

// Does nothing unless this is process 1. Otherwise the caller goes on in a child, and process 1
// does what the system expects of it, as tini does: it reaps every orphan, passes signals on to the
// child, and ends with the child's exit code, which ends everything left in the namespace.
void be_init_if_first();

}  // namespace rueda::agent
