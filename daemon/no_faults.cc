// ruedad has no faults.
#include "daemon/faults.h"

namespace rueda {

Faults planted_faults() { return {}; }

}  // namespace rueda
