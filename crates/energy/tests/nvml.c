/* A library that answers as NVIDIA's management library does, with what the file SAYS holds: an
 * error number and a number of millijoules. It has three boards; the second has no counter. */
#include <stdio.h>
#include <string.h>

static int said(unsigned long long *energy_mj)
{
    int error = 999;
    FILE *file = fopen(SAYS, "r");
    if (file == NULL)
        return 999;
    if (fscanf(file, "%d %llu", &error, energy_mj) != 2)
        error = 999;
    fclose(file);
    return error;
}

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    strncpy(version, "550.54.15", length);
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 3;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    static char boards[3];
    *device = &boards[index];
    return index < 3 ? 0 : 2;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy_mj)
{
    static void *second;
    nvmlDeviceGetHandleByIndex_v2(1, &second);
    return device == second ? 3 : said(energy_mj);
}
