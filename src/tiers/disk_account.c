/* SPDX-License-Identifier: MIT */
#include "tiers/disk_account.h"

#include "tiers/disk_number.h"

bool disk_account_lock(const struct disk_dir *dir, int root, struct disk_account *account)
{
    *account = (struct disk_account){.fd = disk_number_lock(dir, root, "account")};
    account->is_known = account->fd >= 0 && disk_number_read(dir, account->fd, &account->used);
    return account->fd >= 0;
}

void disk_account_unlock(struct disk_account *account)
{
    disk_dir_close(account->fd);
    account->fd = -1;
}

bool disk_account_set(const struct disk_dir *dir, struct disk_account *account, uint64_t used)
{
    account->is_known = disk_number_write(dir, account->fd, used);
    account->used = used;
    return account->is_known;
}

bool disk_account_add(const struct disk_dir *dir, struct disk_account *account, uint64_t room)
{
    return disk_account_set(dir, account, account->used + room);
}

/* A count that cannot be written stays too high. */
void disk_account_subtract(const struct disk_dir *dir, struct disk_account *account, uint64_t room)
{
    if (account->fd >= 0 && account->is_known && account->used >= room) {
        (void)disk_account_set(dir, account, account->used - room);
    }
}
