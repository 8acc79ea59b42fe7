/* A library that answers as NVIDIA's management library does, with what the file SAYS holds: an
 * error number and a number of millijoules. It has four boards: the second tells nothing, and the
 * fourth, which is there where SAYS has a third number, its power in milliwatts alone. */
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

static int said_power(unsigned *milliwatts)
{
    int error = 3;
    FILE *file = fopen(SAYS, "r");
    if (file == NULL)
        return 999;
    if (fscanf(file, "%*d %*u %u", milliwatts) == 1)
        error = 0;
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
    unsigned milliwatts;
    *count = said_power(&milliwatts) == 0 ? 4 : 3;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    static char boards[4];
    *device = &boards[index];
    return index < 4 ? 0 : 2;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy_mj)
{
    static void *second, *fourth;
    nvmlDeviceGetHandleByIndex_v2(1, &second);
    nvmlDeviceGetHandleByIndex_v2(3, &fourth);
    return device == second || device == fourth ? 3 : said(energy_mj);
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    static void *fourth;
    nvmlDeviceGetHandleByIndex_v2(3, &fourth);
    return device == fourth ? said_power(milliwatts) : 3;
}
