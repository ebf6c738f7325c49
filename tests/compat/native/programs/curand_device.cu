// needs: curand_kernel.h
#include "check.h"
#include <cmath>
#include <curand_kernel.h>

__global__ void draw(float *u, float *n, unsigned *same)
{
    curandStatePhilox4_32_10_t s;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    curand_init(1234, i, 0, &s);
    u[i] = curand_uniform(&s);
    n[i] = curand_normal(&s);
    curandState x; // XORWOW
    curand_init(99, 0, 0, &x);
    unsigned a = curand(&x);
    if (i == 0) same[0] = a;
    if (i == 100) same[1] = a;
}

int main()
{
    const int count = 2048;
    static float u[count], n[count];
    float *d, *e;
    unsigned *s, h[2];
    CUDA(cudaMalloc(&d, sizeof u));
    CUDA(cudaMalloc(&e, sizeof n));
    CUDA(cudaMalloc(&s, sizeof h));
    draw<<<count / 128, 128>>>(d, e, s);
    CUDA(cudaMemcpy(u, d, sizeof u, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(n, e, sizeof n, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(h, s, sizeof h, cudaMemcpyDeviceToHost));
    double mean = 0, normal = 0, square = 0;
    for (int i = 0; i < count; i++) {
        CHECK(u[i] > 0 && u[i] <= 1);
        mean += u[i] / count;
        normal += n[i] / count;
        square += n[i] * n[i] / count;
    }
    CHECK(fabs(mean - 0.5) < 0.03 && fabs(normal) < 0.1 && fabs(square - 1) < 0.15);
    CHECK(h[0] == h[1] && h[0] != 0);
    puts("ok");
}
