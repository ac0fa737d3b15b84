#include "core/reservation.h"

const str reservation_status_words[] = {
#define RESERVATION_WORD(symbol) STR_INIT(#symbol),
    RESERVATION_STATUS_MAP(RESERVATION_WORD)
#undef RESERVATION_WORD
        {NULL, 0},
};
