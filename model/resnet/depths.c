// model/resnet/depths.c: what each depth of a residual network means: see model/resnet/resnet.h.
#include "model/resnet/resnet.h"

const net_depth resnet_depths[RESNET_DEPTHS] = {
    {18, false, RESNET_BASIC, 4, {2, 2, 2, 2}},      {34, false, RESNET_BASIC, 4, {3, 4, 6, 3}},
    {50, false, RESNET_BOTTLENECK, 4, {3, 4, 6, 3}}, {101, false, RESNET_BOTTLENECK, 4, {3, 4, 23, 3}},
    {20, true, RESNET_BASIC, 3, {3, 3, 3}},          {32, true, RESNET_BASIC, 3, {5, 5, 5}},
    {56, true, RESNET_BASIC, 3, {9, 9, 9}}};
