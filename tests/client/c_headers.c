/* That the public header and the ABI compile as C11. */
#include "client/abi/rueda_abi.h"
#include "client/include/rueda/rueda.h"

int rueda_c_headers_are_read(void);
int rueda_c_headers_are_read(void) { return (int)sizeof(rueda_tensor); }
